"""Where in the run the controller is, so that a failing worker can be told apart from all its other calls.

The loop says it once; every group that is called inside puts it into its errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """A place in the run; None where it is not known."""

    step: int | None = None
    phase: str | None = None

    def __str__(self) -> str:
        parts = [f"{name} {value}" for name, value in (("step", self.step), ("phase", self.phase)) if value is not None]
        return ", ".join(parts)


_NOWHERE = Progress()
_CURRENT: ContextVar[Progress] = ContextVar("rl_core_progress", default=_NOWHERE)


def current_progress() -> Progress:
    """The innermost place that was entered in this context."""
    return _CURRENT.get()


@contextmanager
def progress(*, step: int | None = None, phase: str | None = None) -> Iterator[None]:
    """Enter a step, a phase, or both; what is not given stays as it is outside."""
    outer = _CURRENT.get()
    token = _CURRENT.set(Progress(outer.step if step is None else step, outer.phase if phase is None else phase))
    try:
        yield
    finally:
        _CURRENT.reset(token)
