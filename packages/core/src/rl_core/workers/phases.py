"""What is on the device, and when: one table over all roles that share it.

::

    phase                part                 states
    sync_weights         actor, rollout       parameters; weights
    generate             rollout              weights, cache
    log_prob             actor                parameters
    ref_log_prob         ref                  parameters
    values               critic               parameters
    reward_model         reward_model         parameters
    reward_reference     reward_reference     parameters
    update_reward_model  reward_model         parameters, gradients, optimizer
    update_critic        critic               parameters, gradients, optimizer
    update_actor         actor                parameters, gradients, optimizer
    update_sft           actor                parameters, gradients, optimizer
    compute_loss         actor                parameters
    checkpoint           every trained part   parameters, optimizer

The table is one for the whole system; each worker process applies the columns of the parts that live in it, and a worker
leaves the device when its phase ends, so that the next worker on it finds the room.

A state that a phase does not need is *evicted* before the phase's own states are loaded, so the two never stand in
memory together - unless the configuration lets it stay (``param_offload=False`` and the like), when it simply stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Protocol

from rl_core.errors import RlError
from rl_core.workers.memory import MemoryMeter


class Part(StrEnum):
    """A holder of device memory."""

    ACTOR = "actor"
    REF = "ref"
    CRITIC = "critic"
    REWARD_MODEL = "reward_model"
    REWARD_REFERENCE = "reward_reference"
    ROLLOUT = "rollout"


class Phase(StrEnum):
    """What a worker is doing; the rows of the table."""

    SYNC_WEIGHTS = "sync_weights"
    GENERATE = "generate"
    LOG_PROB = "log_prob"
    REF_LOG_PROB = "ref_log_prob"
    VALUES = "values"
    REWARD_MODEL = "reward_model"
    REWARD_REFERENCE = "reward_reference"
    UPDATE_REWARD_MODEL = "update_reward_model"
    UPDATE_CRITIC = "update_critic"
    UPDATE_ACTOR = "update_actor"
    UPDATE_SFT = "update_sft"
    COMPUTE_LOSS = "compute_loss"
    CHECKPOINT = "checkpoint"


State = tuple[Part, str]
"""A part and one of its ``EngineState`` or ``RolloutState`` values."""


def _trained(part: Part) -> frozenset[State]:
    return frozenset({(part, "parameters"), (part, "gradients"), (part, "optimizer")})


NEEDS: Mapping[Phase, frozenset[State]] = {
    Phase.SYNC_WEIGHTS: frozenset({(Part.ACTOR, "parameters"), (Part.ROLLOUT, "weights")}),
    Phase.GENERATE: frozenset({(Part.ROLLOUT, "weights"), (Part.ROLLOUT, "kv_cache")}),
    Phase.LOG_PROB: frozenset({(Part.ACTOR, "parameters")}),
    Phase.REF_LOG_PROB: frozenset({(Part.REF, "parameters")}),
    Phase.VALUES: frozenset({(Part.CRITIC, "parameters")}),
    Phase.REWARD_MODEL: frozenset({(Part.REWARD_MODEL, "parameters")}),
    Phase.REWARD_REFERENCE: frozenset({(Part.REWARD_REFERENCE, "parameters")}),
    Phase.UPDATE_REWARD_MODEL: _trained(Part.REWARD_MODEL),
    Phase.UPDATE_CRITIC: _trained(Part.CRITIC),
    Phase.UPDATE_ACTOR: _trained(Part.ACTOR),
    Phase.UPDATE_SFT: _trained(Part.ACTOR),
    Phase.COMPUTE_LOSS: frozenset({(Part.ACTOR, "parameters")}),
    Phase.CHECKPOINT: frozenset(
        {
            (part, state)
            for part in (Part.ACTOR, Part.CRITIC, Part.REWARD_MODEL)
            for state in ("parameters", "optimizer")
        }
    ),
}
"""Phase -> the states it needs on the device."""


class Movable(Protocol):
    """Something whose states can leave the device and come back."""

    def resident(self) -> frozenset[str]:
        """States on the device now."""

    def evict(self, states: Collection[str]) -> None:
        """Take ``states`` off the device."""

    def load(self, states: Collection[str]) -> None:
        """Bring ``states`` to the device."""


class PhaseTable:
    """Moves the parts of one worker between phases. Knows only the parts that live on this worker."""

    def __init__(
        self, parts: Mapping[Part, Movable], evictable: Collection[State], meter: MemoryMeter | None = None
    ) -> None:
        """Store the table's movable columns.

        Args:
            parts: the movable parts of this worker.
            evictable: states that must leave when a phase does not need them; all others stay where they are.
            meter: measures each phase; None measures nothing.
        """
        self._parts = dict(parts)
        self._evictable = frozenset(evictable)
        self.meter = meter
        self._phase: Phase | None = None
        self._memory: dict[str, int] = {}

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
        self._measure()
        self._evict(self._evictable - needed)
        if self.meter is not None:
            self.meter.restart()
        for part, movable in self._parts.items():
            missing = {state for owner, state in needed if owner is part} - movable.resident()
            if missing:
                movable.load(missing)
        self._phase = Phase(phase)

    def leave(self, phase: str) -> None:
        """Evict what may not stay after ``phase``, so that another process on the device finds the room."""
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
            yield
        finally:
            self.leave(phase)

    def _measure(self) -> None:
        """Put down what the phase that ends held, before anything of it leaves."""
        if self.meter is not None and self._phase is not None:
            self._memory[self._phase.value] = max(self._memory.get(self._phase.value, 0), self.meter.read())

    def _evict(self, states: Collection[State]) -> None:
        for part, movable in self._parts.items():
            leaving = {state for owner, state in states if owner is part} & movable.resident()
            if leaving:
                movable.evict(leaving)
