"""Steps that every rank takes or none: what fails on one fails on all."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final

from rl_core.errors import CheckpointError
from rl_core.single_controller.base.collective import WorkerContext
from torch.distributed.checkpoint.api import CheckpointException

UNREADABLE: Final = (
    OSError,
    ValueError,
    RuntimeError,
    EOFError,
    KeyError,
    pickle.UnpicklingError,
    CheckpointException,
)
"""What torch raises for files that cannot be written or read."""


def together(context: WorkerContext, what: str, action: Callable[[], Any]) -> Any:
    """Run ``action`` on every rank; if it fails on any, fail on all, so that nobody waits for a peer that gave up.

    Raises:
        CheckpointError: ``what``, the rank, and why.
    """
    problem: str | None = None
    result: Any = None
    try:
        result = action()
    except CheckpointError as error:
        problem = str(error)
    except UNREADABLE as error:
        problem = in_one_line(error)
    problems = context.collective.all_gather_object(problem)
    for rank, text in enumerate(problems):
        if text is not None:
            msg = f"{what}: rank {rank}: {text}"
            raise CheckpointError(msg)
    return result


def in_one_line(error: BaseException) -> str:
    """Kind and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
