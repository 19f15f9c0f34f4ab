"""Whether a sleep gave its memory back, as the device itself counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from rl_core.contracts.rollout import RolloutState
from rl_core.errors import RlError

Report = Mapping[str, int]
"""Bytes, see ``WorkerExtension.rl_memory``."""
_GIB: Final = 1 << 30


def require_freed(
    before: Sequence[Report], after: Sequence[Report], states: Collection[RolloutState], *, level: int, min_share: float
) -> int:
    """Bytes that the sleep gave back, over all workers of the replica.

    Args:
        before: of every worker, before the sleep.
        after: the same, behind it.
        states: what was on the device before.
        level: of the sleep.
        min_share: see ``VllmRolloutConfig.min_freed_share``.

    Raises:
        RlError: a device got back less than ``min_share`` of weights and cache.
    """
    total = 0
    for rank, (first, last) in enumerate(zip(before, after, strict=True)):
        if "free" not in first or "free" not in last:
            continue  # a CPU, which has no memory of its own to give back
        freed = last["free"] - first["free"]
        due = {str(state): first[state] for state in states}
        if freed < min_share * sum(due.values()):
            raise RlError(_shortfall(rank, freed, due, last, level))
        total += freed
    return total


def _shortfall(rank: int, freed: int, due: Mapping[str, int], after: Report, level: int) -> str:
    parts = ", ".join(f"{name} {_gib(size)}" for name, size in due.items())
    other = after["total"] - after["free"] - after["reserved"]
    return (
        f"worker {rank} of the vLLM engine gave {_gib(freed)} back when it went to sleep (level {level}), but held {parts}. "
        f"Still in use on the device: {_gib(after['allocated'])} in tensors of that worker and "
        f"{_gib(after['reserved'] - after['allocated'])} that its allocator keeps (both outside of the memory that can sleep), "
        f"{_gib(other)} by contexts, captured graphs and other processes. Another process on the device may have grown "
        "meanwhile; enforce_eager=true does without graphs; rollout.vllm.min_freed_share sets what is demanded"
    )


def _gib(size: int) -> str:
    return f"{size / _GIB:.2f} GiB"
