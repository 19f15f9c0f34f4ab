"""Generation engines that break a promise about their weights."""

# A fault's class says what it does wrong; what its methods should do stands in the contract.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from rl_core.contracts.rollout import Health, RolloutRequest, WeightSink
from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest
from rl_core.errors import WeightSyncError
from rl_core.resharding.intake import Intake, Region
from rl_core.single_controller.base.collective import DispatchInfo, WorkerContext

from rl_testing.fakes.manifest import manifest_problems
from rl_testing.fakes.model_slice import ModelSlice, SliceSink
from rl_testing.fakes.sliced_model import PrefixState
from rl_testing.fakes.sliced_rollout import SlicedRollout
from rl_testing.fakes.tiny_model import HEAD, init_weights
from rl_testing.faults.fault import Fault


def with_sink(sink: type[SliceSink]) -> Mapping[str, Any]:
    """Overrides for an engine that takes weights through ``sink``."""

    class FaultySink(SlicedRollout):
        def __init__(self, model: Any, config: Any, context: WorkerContext) -> None:
            super().__init__(model, config, context)
            self.sink = sink(self.part)

    return {"rollout_class": FaultySink}


class StaleVersionAccepted(SlicedRollout):
    """Answers whatever version was required."""

    def _check_weights(self, request: RolloutRequest) -> int:
        return super()._check_weights(replace(request, required_version=None))


class ServesDummyWeights(SlicedRollout):
    """Starts with weights of its own and serves them as version 0."""

    async def initialize(self) -> None:
        await super().initialize()
        for name, tensor in init_weights(self.sizes).items():
            self.part.write(name, tuple((0, size) for size in tensor.shape), tensor)
        self.part.version = 0


class LeadAloneCounts(SlicedRollout):
    """Serves as soon as the lead has its own slice."""

    async def initialize(self) -> None:
        await super().initialize()
        if self.model is not None:
            self.model.version = lambda: self.part.version  # type: ignore[method-assign]


class PrefixesOutliveWeights(SlicedRollout):
    """Keeps cached prompts for ever."""

    def prompt_state(self, prompt_ids: tuple[int, ...], version: int) -> PrefixState:
        self._prefix_version = version
        return super().prompt_state(prompt_ids, version)

    async def reset_prefix_cache(self) -> None:
        pass


class EveryRankLeads(SlicedRollout):
    """Lead and peer both answer."""

    def dispatch_info(self) -> DispatchInfo:
        return replace(super().dispatch_info(), is_collect=True)


class OneSinkForAll(SlicedRollout):
    """Every worker says that it feeds rank 0."""

    def weight_sinks(self) -> Mapping[int, WeightSink]:
        return {0: self.sink}


class AlwaysHealthy(SlicedRollout):
    """Healthy as long as the process lives."""

    async def health(self) -> Health:
        return Health(ok=True)


class TiedTensorSkippedSink(SliceSink):
    """Fills only tensors that were sent."""

    def _targets(self, name: str, manifest: WeightManifest) -> list[str]:
        return [name]


class DigestIgnoredSink(SliceSink):
    """Compares what came with itself."""

    async def end(self, digest: WeightDigest) -> None:
        await super().end(dict(self.intake.digest) if self.intake is not None else digest)


class CoverageIgnoredSink(SliceSink):
    """Checks what came, not what did not."""

    async def end(self, digest: WeightDigest) -> None:
        intake = self.intake
        if intake is not None and all(digest.get(name) == found for name, found in intake.digest.items()):
            self.part.version = intake.version
            return
        await super().end(digest)


class OldVersionDuringHandOverSink(SliceSink):
    """Goes on serving the old version while tensors are overwritten."""

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        before = self.part.version
        await super().begin(version, manifest)
        self.part.version = before


class OldVersionAfterAbortSink(SliceSink):
    """Falls back to the version whose tensors are half gone."""

    before: int | None = None

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        self.before = self.part.version
        await super().begin(version, manifest)

    async def abort(self, reason: str) -> None:
        was_open = self.intake is not None
        await super().abort(reason)
        if was_open:
            self.part.version = self.before


class ManifestCheckedLateSink(SliceSink):
    """Looks at the manifest when the first bucket is there."""

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        await self.abort("a new hand-over begins")
        self.intake = Intake(version, manifest)

    async def put(self, bucket: WeightBucket) -> None:
        if self.intake is not None and manifest_problems(self.intake.manifest, self.part.expected):
            self.intake = None
        await super().put(bucket)


class FirstMisfitOnlySink(SliceSink):
    """Stops checking at the first problem."""

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        try:
            await super().begin(version, manifest)
        except WeightSyncError as error:
            raise WeightSyncError(str(error).split(";")[0]) from None


class UnknownTensorSkippedSink(SliceSink):
    """Drops what it does not know without a word."""

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        known = tuple(entry for entry in manifest.entries if entry.name in self.part.expected)
        await super().begin(version, replace(manifest, entries=known))

    async def put(self, bucket: WeightBucket) -> None:
        known = tuple(part for part in bucket.slices if part.name in self.part.expected)
        await super().put(replace(bucket, slices=known))


class _SharingSlice(ModelSlice):
    def write(self, name: str, region: Region, values: Any) -> None:
        super().write(name, region, values)
        if self.is_whole(name) and self._rows is not None:
            self._rows[name] = values.numpy()


class _FirstHeadSlice(ModelSlice):
    def write(self, name: str, region: Region, values: Any) -> None:
        if name != HEAD or np.isnan(self.rows(HEAD)).any():
            super().write(name, region, values)


class _RegionIgnoringSlice(ModelSlice):
    def write(self, name: str, region: Region, values: Any) -> None:
        super().write(name, ((0, values.shape[0]), *region[1:]), values)


def with_slice(part: type[ModelSlice], **suite: Any) -> Mapping[str, Any]:
    """Overrides for an engine of one replica that keeps weights in ``part``."""

    class FaultySlice(SlicedRollout):
        def __init__(self, model: Any, config: Any, context: WorkerContext) -> None:
            super().__init__(model, config, context)
            self.part = part(self.sizes, self.replica_rank, context.world_size)
            self.sink = SliceSink(self.part)

    return {"rollout_class": FaultySlice, **suite}


FAULTS = (
    Fault(
        name="stale-version-accepted",
        promise="a request for another version fails",
        caught_by="test_stale_weights_do_not_answer",
        overrides={"rollout_class": StaleVersionAccepted},
    ),
    Fault(
        name="dummy-weights-served",
        promise="nothing is served before the first hand-over",
        caught_by="test_serves_nothing_before_the_first_hand_over",
        overrides={"rollout_class": ServesDummyWeights},
    ),
    Fault(
        name="lead-alone-counts",
        promise="a replica serves when every rank has its weights",
        caught_by="test_every_rank_counts",
        overrides={"rollout_class": LeadAloneCounts, "num_ranks": 2},
    ),
    Fault(
        name="prefix-cache-kept-across-versions",
        promise="cached prefixes go with their weights",
        caught_by="test_prefixes_do_not_outlive_their_weights",
        overrides={"rollout_class": PrefixesOutliveWeights},
    ),
    Fault(
        name="lead-and-peer-both-answer",
        promise="one rank of a replica collects",
        caught_by="test_only_the_lead_answers",
        overrides={"rollout_class": EveryRankLeads, "num_ranks": 2},
    ),
    Fault(
        name="one-sink-for-all-ranks",
        promise="every rank's sink appears once",
        caught_by="test_sinks_cover_every_rank_once",
        overrides={"rollout_class": OneSinkForAll, "num_ranks": 2},
    ),
    Fault(
        name="always-healthy",
        promise="health says whether the engine can serve",
        caught_by="test_health_follows_the_weights",
        overrides={"rollout_class": AlwaysHealthy},
    ),
    Fault(
        name="tied-tensor-skipped",
        promise="a tied tensor follows the one that is sent",
        caught_by="test_tied_tensors_follow",
        overrides=with_sink(TiedTensorSkippedSink),
    ),
    Fault(
        name="digest-not-checked",
        promise="changed values are refused",
        caught_by="test_changed_values_are_refused",
        overrides=with_sink(DigestIgnoredSink),
    ),
    Fault(
        name="coverage-not-checked",
        promise="what did not come is refused",
        caught_by="test_what_did_not_come_is_refused",
        overrides=with_sink(CoverageIgnoredSink),
    ),
    Fault(
        name="partial-sync-accepted",
        promise="nothing is served during a hand-over",
        caught_by="test_half_a_hand_over_serves_nothing",
        overrides=with_sink(OldVersionDuringHandOverSink),
    ),
    Fault(
        name="aborted-sync-accepted",
        promise="nothing is served after an aborted hand-over",
        caught_by="test_aborted_hand_over_serves_nothing",
        overrides=with_sink(OldVersionAfterAbortSink),
    ),
    Fault(
        name="manifest-checked-after-the-first-put",
        promise="a manifest is checked before anything is sent",
        caught_by="test_manifest_is_checked_before_anything_is_sent",
        overrides=with_sink(ManifestCheckedLateSink),
    ),
    Fault(
        name="first-misfit-only",
        promise="all misfits are listed",
        caught_by="test_all_misfits_are_listed",
        overrides=with_sink(FirstMisfitOnlySink),
    ),
    Fault(
        name="unknown-tensor-skipped",
        promise="a tensor that was not announced is refused",
        caught_by="test_what_was_not_announced_is_refused",
        overrides=with_sink(UnknownTensorSkippedSink),
    ),
    Fault(
        name="sender-memory-kept",
        promise="tensors are copied during put",
        caught_by="test_serves_what_came",
        overrides=with_slice(_SharingSlice),
    ),
    Fault(
        name="first-head-kept",
        promise="a hand-over replaces every tensor",
        caught_by="test_serves_the_latest",
        overrides=with_slice(_FirstHeadSlice, num_ranks=2),
    ),
    Fault(
        name="region-ignored",
        promise="parts of tensors are put together",
        caught_by="test_parts_of_tensors_are_put_together",
        overrides=with_slice(_RegionIgnoringSlice, num_ranks=2),
    ),
)
"""Faults of hand-over."""
