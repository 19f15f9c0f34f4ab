"""Every hook of rl_core, on one page.

A plugin is a module that implements some of these with ``from rl_core import hookimpl``. Registration is one hook
that returns records, so a new *kind* of part is a new record class and never a new hook. No hook sits on a
per-token or per-micro-batch path: hooks wire things together, contracts do the work.

Implementations may take any subset of the arguments, by name and without defaults. Results of observers are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rl_core.plugins.records import Record

PROJECT_NAME: Final = "rl_core"
ENTRY_POINT_GROUP: Final = "rl_core.plugins"

# (major, minor). Minor grows when a hook, an argument or a record field is added; major when one is removed or renamed.
HOOK_API: Final = (1, 0)

hookspec = pluggy.HookspecMarker(PROJECT_NAME)
hookimpl = pluggy.HookimplMarker(PROJECT_NAME)


@hookspec
def rl_plugins() -> Iterable[Record]:  # type: ignore[empty-body]
    """Return one record for each part that this distribution provides.

    Called once a process, in the driver and in every worker: it must have no side effects, give the same records each
    time, and import nothing heavy.
    """


@hookspec
def rl_step_started(step: int) -> None:
    """Observe on the driver that training step ``step`` (counted from 1) begins."""


@hookspec
def rl_step_finished(step: int, metrics: Mapping[str, float]) -> None:
    """Observe on the driver that step ``step`` is done; ``metrics`` is what the trackers receive, read-only."""
