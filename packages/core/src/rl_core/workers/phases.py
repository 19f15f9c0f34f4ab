"""What is on the device, and when: applies the one table over all roles (``rl_core.config.phase_table``).

The table is one for the whole system; each worker process applies the columns of the parts that live in it, and a worker
leaves the device when its phase ends, so that the next worker on it finds the room.

A state that a phase does not need is *evicted* before the phase's own states are loaded, so the two never stand in
memory together - unless the configuration lets it stay (``param_offload=False`` and the like), when it simply stays.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from torch.profiler import record_function

from rl_core.config.phase_table import NEEDS, Part, Phase, State
from rl_core.errors import RlError
from rl_core.workers.memory import MemoryMeter
from rl_core.workers.out_of_memory import MemorySnapshot, is_out_of_memory
from rl_core.workers.throughput import PhaseClock

__all__ = ["NEEDS", "Movable", "Part", "Phase", "PhaseTable", "State"]


class Movable(Protocol):
    """Something whose states can leave the device and come back."""

    def resident(self) -> frozenset[str]:
        """States on the device now."""

    def evict(self, states: Collection[str]) -> None:
        """Take ``states`` off the device."""

    def load(self, states: Collection[str]) -> None:
        """Bring ``states`` to the device."""

    def sizes(self) -> Mapping[str, int]:
        """Bytes on the device of the states that can be measured."""


class PhaseTable:
    """Moves the parts of one worker between phases. Knows only the parts that live on this worker."""

    def __init__(
        self,
        parts: Mapping[Part, Movable],
        evictable: Collection[State],
        meter: MemoryMeter | None = None,
        clock: PhaseClock | None = None,
    ) -> None:
        """Store the table's movable columns.

        Args:
            parts: the movable parts of this worker.
            evictable: states that must leave when a phase does not need them; all others stay where they are.
            meter: measures the memory of each phase; None measures nothing.
            clock: times each phase; None times nothing.
        """
        self._parts = dict(parts)
        self._evictable = frozenset(evictable)
        self.meter = meter
        self._clock = clock
        self._phase: Phase | None = None
        self._memory: dict[str, int] = {}
        self._failure: MemorySnapshot | None = None

    @property
    def phase(self) -> Phase | None:
        """The phase the worker is in; None between phases."""
        return self._phase

    def resident(self) -> frozenset[State]:
        """Everything on the device now."""
        return frozenset((part, state) for part, movable in self._parts.items() for state in movable.resident())

    def enter(self, phase: str) -> None:
        """Evict what ``phase`` does not need, then load what it needs: never the other way round."""
        needed = NEEDS[Phase(phase)]
        self._failure = None
        self._measure()
        self._evict(self._evictable - needed)
        if self.meter is not None:
            self.meter.restart()
        try:
            self._load(needed)
        except Exception as error:
            self._note_failure(error, Phase(phase))
            raise
        self._phase = Phase(phase)
        if self._clock is not None:
            self._clock.start()

    def leave(self, phase: str) -> None:
        """Evict what may not stay after ``phase``, so that another process on the device finds the room."""
        self._note_failure(sys.exception(), Phase(phase))
        self._measure()
        self._evict(self._evictable & NEEDS[Phase(phase)])
        self._phase = None

    def evict_all(self) -> None:
        """Evict everything that may not stay: the state between phases."""
        self._evict(self._evictable)
        self._phase = None

    def take_memory(self) -> dict[str, int]:
        """Phase -> bytes that it held at most since the last call, see ``MemoryMeter``; forgets them."""
        taken, self._memory = self._memory, {}
        return taken

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """``enter`` before and ``leave`` after a block.

        Raises:
            RlError: the worker is generating; evicting the generator would cut its responses off without a word.
        """
        if self._phase is Phase.GENERATE:
            msg = f"{phase} was asked for while responses are generated; end that first (abort_rollouts)"
            raise RlError(msg)
        self.enter(phase)
        try:
            with record_function(f"phase: {phase.value}"):  # for whoever records this step
                yield
        finally:
            self.leave(phase)

    def take_failure(self) -> MemorySnapshot:
        """What was on the device when the last call ran out of memory, before anything left it; forgets it."""
        snapshot, self._failure = self._failure or self._snapshot(self._phase), None
        return snapshot

    def _note_failure(self, error: BaseException | None, phase: Phase) -> None:
        if self._failure is None and is_out_of_memory(error):
            self._failure = self._snapshot(phase)

    def _snapshot(self, phase: Phase | None) -> MemorySnapshot:
        states: dict[State, int | None] = {}
        for part, movable in self._parts.items():
            sizes = movable.sizes()
            states |= {(part, state): sizes.get(state) for state in movable.resident()}
        meter = self.meter
        if meter is None:
            return MemorySnapshot(phase, states, None)
        return MemorySnapshot(phase, states, meter.read(), meter.is_device)

    def _load(self, needed: Collection[State]) -> None:
        for part, movable in self._parts.items():
            missing = {state for owner, state in needed if owner is part} - movable.resident()
            if missing:
                movable.load(missing)

    def _measure(self) -> None:
        """Put down what the phase that ends did and held, before anything of it leaves."""
        if self._clock is not None and self._phase is not None:
            self._clock.stop(self._phase.value)
        if self.meter is not None and self._phase is not None:
            self._memory[self._phase.value] = max(self._memory.get(self._phase.value, 0), self.meter.read())

    def _evict(self, states: Collection[State]) -> None:
        for part, movable in self._parts.items():
            leaving = {state for owner, state in states if owner is part} & movable.resident()
            if leaving:
                movable.evict(leaving)
