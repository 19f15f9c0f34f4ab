"""The two kinds of device memory that the phase table moves, in its terms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rl_core.contracts.engine import EngineState, TrainingEngine
from rl_core.contracts.resharding import RunCoroutine
from rl_core.contracts.rollout import RolloutEngine, RolloutState


class MovableEngine:
    """A training engine: states are offloaded and come back with their values."""

    def __init__(self, engine: TrainingEngine) -> None:
        """Wrap ``engine``."""
        self._engine = engine

    def resident(self) -> frozenset[str]:
        """States on the device now."""
        return frozenset(state.value for state in self._engine.resident())

    def evict(self, states: Collection[str]) -> None:
        """Offload ``states``."""
        self._engine.offload({EngineState(state) for state in states})

    def load(self, states: Collection[str]) -> None:
        """Bring ``states`` back."""
        self._engine.onload({EngineState(state) for state in states})

    def sizes(self) -> Mapping[str, int]:
        """As the engine counts."""
        return {state.value: size for state, size in self._engine.state_bytes().items()}


class MovableRollout:
    """A generation engine: its weights and its cache leave together by ``sleep`` and wake one after the other."""

    def __init__(self, rollout: RolloutEngine, run: RunCoroutine[Any], sleep_level: int) -> None:
        """Wrap ``rollout``; ``sleep_level`` as in ``RolloutEngine.sleep``."""
        self._rollout = rollout
        self._run = run
        self._sleep_level = sleep_level

    def resident(self) -> frozenset[str]:
        """States on the device now."""
        return frozenset(state.value for state in self._rollout.resident())

    def evict(self, states: Collection[str]) -> None:
        """Put the engine to sleep: it gives back everything at once."""
        self._run(self._rollout.sleep(self._sleep_level))

    def load(self, states: Collection[str]) -> None:
        """Wake ``states``; weights before the cache."""
        for state in (RolloutState.WEIGHTS, RolloutState.KV_CACHE):
            if state.value in states:
                self._run(self._rollout.wake((state,)))

    def sizes(self) -> Mapping[str, int]:
        """Not measured: the engine may live in processes of its own."""
        return {}
