"""Generation engines that break a promise about their life cycle."""

# A fault's class says what it does wrong; what its methods should do stands in the contract.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Collection

from rl_core.contracts.rollout import RolloutState
from rl_core.contracts.weights import WeightManifest

from rl_testing.fakes.model_slice import ModelSlice, SliceSink
from rl_testing.fakes.sliced_rollout import SlicedRollout
from rl_testing.faults.fault import Fault
from rl_testing.faults.rollout_weights import with_sink, with_slice


class Level2ClaimsWeightsKept(SlicedRollout):
    """Says after level 2 that its weights can come back."""

    async def sleep(self, level: int) -> frozenset[RolloutState]:
        return await super().sleep(1)


class Level1Discards(SlicedRollout):
    """Discards its weights at every level."""

    async def sleep(self, level: int) -> frozenset[RolloutState]:
        return await super().sleep(2)


class SleepKeepsTheCache(SlicedRollout):
    """Gives the weights back, and no more."""

    async def sleep(self, level: int) -> frozenset[RolloutState]:
        kept = await super().sleep(level)
        await self.wake([RolloutState.KV_CACHE])
        return kept


class WakesEverything(SlicedRollout):
    """Takes memory for weights and cache at once."""

    async def wake(self, tags: Collection[RolloutState]) -> None:
        await super().wake(tuple(RolloutState))


class NeverCloses(SlicedRollout):
    """Goes on after ``close``."""

    async def close(self) -> None:
        pass


class _ForgettingSlice(ModelSlice):
    def wake(self, tags: Collection[RolloutState]) -> None:
        super().wake(tags)
        if RolloutState.WEIGHTS in tags:
            self._rows = self._allocate()


class SleepingWeightsAcceptedSink(SliceSink):
    """Takes a hand-over although its memory was given back."""

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        await self.abort("a new hand-over begins")
        self.part.wake([RolloutState.WEIGHTS])
        await super().begin(version, manifest)


FAULTS = (
    Fault(
        name="level-2-claims-weights-kept",
        promise="level 2 discards the weights",
        caught_by="test_level_2_discards_the_weights",
        overrides={"rollout_class": Level2ClaimsWeightsKept},
    ),
    Fault(
        name="level-1-discards-weights",
        promise="level 1 keeps the weights",
        caught_by="test_level_1_keeps_the_weights",
        overrides={"rollout_class": Level1Discards},
    ),
    Fault(
        name="sleep-keeps-the-cache",
        promise="a sleeping engine holds nothing on the device",
        caught_by="test_sleep_gives_everything_back",
        overrides={"rollout_class": SleepKeepsTheCache},
    ),
    Fault(
        name="wake-brings-everything",
        promise="wake takes memory for what it is asked",
        caught_by="test_waking_is_staged",
        overrides={"rollout_class": WakesEverything},
    ),
    Fault(
        name="wake-takes-memory-anew",
        promise="what is awake may be woken again",
        caught_by="test_what_is_awake_may_be_woken_again",
        overrides=with_slice(_ForgettingSlice),
    ),
    Fault(
        name="close-is-nothing",
        promise="a closed engine refuses",
        caught_by="test_a_closed_engine_refuses",
        overrides={"rollout_class": NeverCloses},
    ),
    Fault(
        name="sleeping-weights-accepted",
        promise="weights cannot come while they sleep",
        caught_by="test_weights_cannot_come_while_they_sleep",
        overrides=with_sink(SleepingWeightsAcceptedSink),
    ),
)
"""Faults of sleep, wake and close."""
