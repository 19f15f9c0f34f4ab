"""Running out of memory, explained: phase, role, rank, what was asked for, who holds what, which key to lower."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from rl_core.config.memory_knobs import advice
from rl_core.config.phase_table import Phase, State
from rl_core.errors import OutOfMemoryError

if TYPE_CHECKING:
    from rl_core.single_controller.base import WorkerContext
    from rl_core.workers.phases import PhaseTable

_GIB: Final = 2**30
_TEXTS: Final = re.compile(
    r"out of memory|can't allocate memory|STATUS_ALLOC_FAILED|std::bad_alloc|cannot allocate memory", re.IGNORECASE
)
"""What libraries without an exception of their own say: CUDA itself, cuBLAS, torch's allocator on the CPU."""
_ADVICE_OF_TORCH: Final = re.compile(r"\s*If reserved but unallocated memory.*", re.DOTALL)


@dataclass(frozen=True)
class MemorySnapshot:
    """What a worker held when it failed.

    Attributes:
        phase: it was in; None while models are loaded.
        states: what was on the device -> bytes; None where the engine does not count.
        held: bytes that the worker held at most in the phase; None where nothing measures.
        is_device: whether ``held`` is about a device, not about the process.
    """

    phase: Phase | None
    states: Mapping[State, int | None]
    held: int | None
    is_device: bool = False


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether ``error``, or what it was raised from, is about memory that there is not."""
    while error is not None:
        if isinstance(error, MemoryError | torch.OutOfMemoryError | OutOfMemoryError):
            return True
        if isinstance(error, RuntimeError) and _TEXTS.search(str(error)):
            return True
        error = error.__cause__
    return False


def explained(error: BaseException, snapshot: MemorySnapshot, who: str) -> OutOfMemoryError:
    """The error to raise from ``error``.

    Args:
        error: about memory.
        snapshot: of the worker.
        who: role, rank and device.
    """
    doing = "while models were loaded" if snapshot.phase is None else f"in phase {snapshot.phase}"
    said = _ADVICE_OF_TORCH.sub("", str(error)).strip() or type(error).__name__
    helps = "\n".join(f"  - {line}" for line in advice(snapshot.phase, snapshot.states))
    return OutOfMemoryError(f"{who} ran out of memory {doing}. {said}\n{_table(snapshot)}What helps:\n{helps}")


def _table(snapshot: MemorySnapshot) -> str:
    """Who held what, in GiB."""
    rows = [(f"{part} {state}", _gib(size)) for (part, state), size in sorted(snapshot.states.items())]
    if snapshot.held is not None:
        known = [size for size in snapshot.states.values() if size is not None]
        if snapshot.is_device and len(known) == len(snapshot.states):
            rows.append(("work of the phase", _gib(max(0, snapshot.held - sum(known)))))
        rows.append(("in all, at most" if snapshot.is_device else "the whole process", _gib(snapshot.held)))
    if not rows:
        return ""
    lines = "\n".join(f"  {what:<32} {size:>12}" for what, size in rows)
    return f"Held by this worker, GiB:\n{lines}\n"


def _gib(size: int | None) -> str:
    return "not measured" if size is None else f"{size / _GIB:.2f}"


class ExplainsMemory:
    """The part of a worker that turns running out of memory into an error with a way out."""

    context: WorkerContext
    phases: PhaseTable
    _name: str

    def explained(self, error: Exception) -> Exception:
        """See ``Worker.explained``."""
        if isinstance(error, OutOfMemoryError) or not is_out_of_memory(error):
            return error
        who = f"{self._name} rank {self.context.rank} of {self.context.world_size} on {self.context.device}"
        return explained(error, self.phases.take_failure(), who)
