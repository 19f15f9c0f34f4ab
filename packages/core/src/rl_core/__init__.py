"""RL post-training of language models: plugin registry, contracts, dispatch, runtimes, algorithms, the training loop.

Names below are resolved on first use, so that ``import rl_core`` loads nothing: ``hookimpl`` is what a plugin needs,
the others are what a researcher's own worker or script needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from rl_core._version import __version__

if TYPE_CHECKING:
    from rl_core.plugins.hookspecs import hookimpl
    from rl_core.protocol import DataProto
    from rl_core.single_controller.base import Dispatch, Execute, Worker, WorkerGroup, register

__all__ = [
    "DataProto",
    "Dispatch",
    "Execute",
    "Worker",
    "WorkerGroup",
    "__version__",
    "hookimpl",
    "register",
]

_HOMES: Final = {
    "DataProto": "rl_core.protocol",
    "Dispatch": "rl_core.single_controller.base",
    "Execute": "rl_core.single_controller.base",
    "Worker": "rl_core.single_controller.base",
    "WorkerGroup": "rl_core.single_controller.base",
    "hookimpl": "rl_core.plugins.hookspecs",
    "register": "rl_core.single_controller.base",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
