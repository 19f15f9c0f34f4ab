"""Reshardings that break one promise each; run them on ``rl_testing.fakes.resharding_sections.FakeReshardingContract``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from rl_core.contracts.resharding import Resharding
from rl_core.contracts.rollout import WeightSink
from rl_core.contracts.weights import SyncReport, WeightBucket, WeightSlice
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import add_to_digest
from rl_core.resharding.generic import GenericResharding
from rl_core.workers.phases import Part

from rl_testing.faults.fault import Fault

# A fault's class says what it does wrong; what its methods should do stands in the contract.
# ruff: noqa: D102


class _OwnPhases(GenericResharding):
    """Restates ``Resharding.generation`` with its steps as methods, so that one can be done wrongly."""

    @contextmanager
    def generation(self, version: int) -> Iterator[SyncReport]:
        self.enter_sync()
        report = SyncReport(version=version, skipped=True) if self.is_current(version) else self.sync(version)
        self.enter_generation()
        self.meet()
        try:
            yield report
            self.meet()
        finally:
            self.leave()

    def enter_sync(self) -> None:
        self.phases.enter("sync_weights")

    def is_current(self, version: int) -> bool:
        return all(self.context.collective.all_gather_object(self.rollout.version() == version))

    def sync(self, version: int) -> SyncReport:
        report = self.move(version)
        self.run(self.rollout.reset_prefix_cache())
        return report

    def enter_generation(self) -> None:
        self.phases.enter("generate")

    def meet(self) -> None:
        self.context.collective.barrier()

    def leave(self) -> None:
        self.phases.leave("generate")


class AnyVersionWillDo(_OwnPhases):
    """Sends nothing to a generator that has weights."""

    def is_current(self, version: int) -> bool:
        return all(self.context.collective.all_gather_object(self.rollout.version() is not None))


class SendsAlways(_OwnPhases):
    """Sends every time."""

    def is_current(self, version: int) -> bool:
        return False


class EachRankDecides(_OwnPhases):
    """Sends on ranks whose own generator needs it."""

    def is_current(self, version: int) -> bool:
        return self.rollout.version() == version


class CacheWokenFirst(_OwnPhases):
    """Wakes weights and cache before the hand-over."""

    def enter_sync(self) -> None:
        super().enter_sync()
        _wake_cache(self)


class TrainerStays(_OwnPhases):
    """Wakes the cache without sending the trainer away."""

    def enter_generation(self) -> None:
        _wake_cache(self)


def _wake_cache(resharding: Resharding) -> None:
    rollout = resharding.phases._parts[Part.ROLLOUT]  # type: ignore[attr-defined]
    rollout.load({"kv_cache"} - rollout.resident())


class NeverLeaves(_OwnPhases):
    """Leaves the generator awake."""

    def leave(self) -> None:
        pass


class LeavesAfterSuccessOnly(_OwnPhases):
    """Has its way out behind the block instead of in a ``finally``."""

    @contextmanager
    def generation(self, version: int) -> Iterator[SyncReport]:
        self.enter_sync()
        report = SyncReport(version=version, skipped=True) if self.is_current(version) else self.sync(version)
        self.enter_generation()
        self.meet()
        yield report
        self.meet()
        self.leave()


class NobodyWaits(_OwnPhases):
    """Wakes and sleeps each rank by itself."""

    def meet(self) -> None:
        pass


class PrefixCacheKept(_OwnPhases):
    """Does not tell the generator that its prefixes are old."""

    def sync(self, version: int) -> SyncReport:
        return self.move(version)


class FailureIsOver(_OwnPhases):
    """Goes on to generate when the hand-over failed."""

    def sync(self, version: int) -> SyncReport:
        try:
            return super().sync(version)
        except WeightSyncError:
            return SyncReport(version=version)


class FirstRankRaises(GenericResharding):
    """Raises on rank 0 alone what any rank's sink said; the others go on."""

    def _agree(self, sinks: Mapping[int, WeightSink], error: str | None) -> None:
        try:
            super()._agree(sinks, error)
        except WeightSyncError:
            if self.context.rank == 0:
                raise


class OwnErrorOnly(GenericResharding):
    """Raises where the sink failed; the peers wait for a rank that is gone."""

    def _agree(self, sinks: Mapping[int, WeightSink], error: str | None) -> None:
        if error is not None:
            raise WeightSyncError(error)
        super()._agree(sinks, None)


class AbortNotSent(GenericResharding):
    """Raises everywhere and tells no sink."""

    def _agree(self, sinks: Mapping[int, WeightSink], error: str | None) -> None:
        super()._agree({}, error)


class TrainerFailureIsOver(GenericResharding):
    """Ends the hand-over with what came, when the trainer's stream breaks."""

    def move(self, version: int) -> SyncReport:
        sinks = self.rollout.weight_sinks()
        try:
            return super().move(version)
        except RuntimeError:
            for sink in sinks.values():
                self.run(sink.abort("the stream broke"))
            return SyncReport(version=version)


class BytesNotReported(GenericResharding):
    """Reports no bytes."""

    def move(self, version: int) -> SyncReport:
        return replace(super().move(version), num_bytes=0)


class WrongVersion(GenericResharding):
    """Calls the weights by the version before."""

    def move(self, version: int) -> SyncReport:
        return replace(super().move(version - 1), version=version)


async def _put(sink: WeightSink, bucket: WeightBucket) -> None:
    await sink.put(bucket)


class _ChangesBuckets(GenericResharding):
    """Hands other buckets to the sinks than the trainer gave, with a digest to match."""

    def move(self, version: int) -> SyncReport:
        manifest, sinks = self.engine.weight_manifest(), self.rollout.weight_sinks()
        digest: dict[str, int] = {}
        num_bytes = num_tensors = 0

        def each(call: Callable[[WeightSink], Coroutine[Any, Any, None]]) -> None:
            self._agree(sinks, self._each(sinks, call))

        each(lambda sink: sink.begin(version, manifest))
        for bucket in self.changed(list(self.copies())):
            add_to_digest(digest, bucket.slices)
            num_tensors += len(bucket.slices)
            num_bytes += sum(part.tensor.nbytes for part in bucket.slices)
            each(partial(_put, bucket=bucket))
        each(lambda sink: sink.end(digest))
        return SyncReport(version=version, num_tensors=num_tensors, num_bytes=num_bytes, seconds=1e-9)

    def copies(self) -> Iterator[WeightBucket]:
        for bucket in self.engine.named_weights(self.bucket_bytes):
            yield WeightBucket(
                tuple(WeightSlice(part.name, part.tensor.clone()) for part in bucket.slices), bucket.index
            )

    def changed(self, buckets: list[WeightBucket]) -> list[WeightBucket]:
        raise NotImplementedError


class FirstWeightsForEver(_ChangesBuckets):
    """Keeps the first stream, to save a gather."""

    kept: list[WeightBucket] | None = None

    def changed(self, buckets: list[WeightBucket]) -> list[WeightBucket]:
        self.kept = self.kept or buckets
        return self.kept


class Rounded(_ChangesBuckets):
    """Sends in half precision, though the generator computes in the trainer's."""

    def changed(self, buckets: list[WeightBucket]) -> list[WeightBucket]:
        for bucket in buckets:
            for part in bucket.slices:
                part.tensor.copy_(part.tensor.to(torch.bfloat16))
        return buckets


class LastBucketDropped(_ChangesBuckets):
    """Forgets the bucket that was not full."""

    def changed(self, buckets: list[WeightBucket]) -> list[WeightBucket]:
        return buckets[:-1] if len(buckets) > 1 else buckets


class TrainersMemoryChanged(_ChangesBuckets):
    """Scales the trainer's own tensors on the way."""

    def move(self, version: int) -> SyncReport:
        report = super().move(version)
        states = self.engine.states.device["parameters"]  # type: ignore[attr-defined]
        next(iter(states.values())).mul_(1.001)
        return report

    def changed(self, buckets: list[WeightBucket]) -> list[WeightBucket]:
        return buckets


def _fault(name: str, promise: str, caught_by: str, resharding: type[Resharding], **suite: Any) -> Fault:
    return Fault(name=name, promise=promise, caught_by=caught_by, overrides={"resharding_class": resharding, **suite})


_ONE = ((1, 1),)
_QUICK = {"layouts": ((2, 1),), "deadline_s": 1.0}

FAULTS = (
    _fault(
        "sync-skipped-after-update",
        "a new version is sent to a generator that has weights",
        "test_an_updated_policy_is_sent_though_weights_are_there",
        AnyVersionWillDo,
        layouts=_ONE,
    ),
    _fault(
        "sync-never-skipped",
        "weights that are there are not sent again",
        "test_weights_that_are_there_are_not_sent_again",
        SendsAlways,
    ),
    _fault(
        "each-rank-decides",
        "all ranks agree whether to send",
        "test_all_ranks_agree_whether_to_send",
        EachRankDecides,
        **_QUICK,
    ),
    _fault(
        "wake-order-reversed",
        "the cache is woken after the hand-over",
        "test_old_weights_new_weights_and_cache_never_stand_together",
        CacheWokenFirst,
    ),
    _fault(
        "trainer-stays",
        "the trainer leaves before the cache comes",
        "test_old_weights_new_weights_and_cache_never_stand_together",
        TrainerStays,
    ),
    _fault(
        "replica-does-not-meet",
        "a replica wakes and sleeps as one",
        "test_a_replica_wakes_and_sleeps_as_one",
        NobodyWaits,
        layouts=((2, 2),),
    ),
    _fault(
        "never-leaves",
        "the trainer gets the devices back",
        "test_the_trainer_gets_the_devices_back",
        NeverLeaves,
    ),
    _fault(
        "leaves-after-success-only",
        "an error inside the block leaves it",
        "test_an_error_inside_the_block_leaves_it",
        LeavesAfterSuccessOnly,
    ),
    _fault(
        "trainers-memory-changed",
        "a hand-over leaves the trainer's weights alone",
        "test_the_trainer_gets_the_devices_back",
        TrainersMemoryChanged,
    ),
    _fault(
        "prefix-cache-kept",
        "cached prefixes are forgotten",
        "test_cached_prefixes_are_forgotten",
        PrefixCacheKept,
    ),
    _fault(
        "failed-sync-ignored",
        "a failed hand-over raises",
        "test_one_refusal_is_everybodys",
        FailureIsOver,
        layouts=_ONE,
    ),
    _fault(
        "only-rank-0-raises",
        "every rank raises",
        "test_one_refusal_is_everybodys",
        FirstRankRaises,
        **_QUICK,
    ),
    _fault(
        "error-not-exchanged",
        "nobody waits for a rank that refused",
        "test_one_refusal_is_everybodys",
        OwnErrorOnly,
        **_QUICK,
    ),
    _fault("abort-not-sent", "every sink is told", "test_one_refusal_is_everybodys", AbortNotSent),
    _fault(
        "trainer-failure-ignored",
        "a failed stream raises",
        "test_nobody_waits_for_a_trainer_that_failed",
        TrainerFailureIsOver,
        layouts=_ONE,
    ),
    _fault(
        "bytes-not-reported", "the report tells what was done", "test_the_report_tells_what_was_done", BytesNotReported
    ),
    _fault(
        "wrong-version",
        "the generator serves the version that was asked",
        "test_the_generator_samples_from_the_trainers_weights",
        WrongVersion,
        layouts=_ONE,
    ),
    _fault(
        "first-weights-for-ever",
        "the weights of after the update arrive",
        "test_the_generator_samples_from_the_trainers_weights",
        FirstWeightsForEver,
    ),
    _fault(
        "rounded-on-the-way",
        "weights arrive as they are",
        "test_the_generator_samples_from_the_trainers_weights",
        Rounded,
    ),
    _fault("last-bucket-dropped", "buckets of any size arrive", "test_buckets_of_any_size", LastBucketDropped),
)
"""Faults of reshardings."""
