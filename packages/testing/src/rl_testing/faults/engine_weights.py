"""Training engines whose weight stream cannot be trusted."""

# A fault's class says what it does wrong; what its methods should do stands in the contract.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSlice, WeightStream

from rl_testing.fakes.parts import Parts
from rl_testing.fakes.pipeline_engine import PipelineEngine
from rl_testing.fakes.plain_engine import PlainEngine
from rl_testing.fakes.weight_stream import weight_stream
from rl_testing.faults.engine_numbers import fault


class TiedSentTwice(PlainEngine):
    """Sends a tied tensor under its own name as well."""

    def named_weights(self, bucket_bytes: int, stream: WeightStream = "weights") -> Iterator[WeightBucket]:
        manifest = self.weight_manifest(stream)
        index = -1
        for bucket in super().named_weights(bucket_bytes, stream):
            index = bucket.index
            yield bucket
        for spec in manifest.entries:
            if spec.tied_to is not None:
                index += 1
                yield WeightBucket((WeightSlice(spec.name, self.gather([spec.tied_to])[spec.tied_to]),), index)


class TiedLeftOut(PlainEngine):
    """Does not list tied tensors."""

    def weight_manifest(self, stream: WeightStream = "weights") -> WeightManifest:
        return WeightManifest(entries=super().weight_manifest(stream).sent)


class StreamReversed(PlainEngine):
    """Sends in another order than the manifest's."""

    def named_weights(self, bucket_bytes: int, stream: WeightStream = "weights") -> Iterator[WeightBucket]:
        manifest = self.weight_manifest(stream)
        return weight_stream(self.gather, WeightManifest(entries=manifest.entries[::-1]), bucket_bytes)


class ShapeOfAShard(PipelineEngine):
    """Lists the shape of the rows that this rank holds."""

    def weight_manifest(self, stream: WeightStream = "weights") -> WeightManifest:
        entries = []
        for spec in super().weight_manifest(stream).entries:
            part = self.places.get(spec.name)
            rows = spec.shape[0] if part is None else part.stop - part.start
            entries.append(replace(spec, shape=(rows, *spec.shape[1:])))
        return WeightManifest(entries=tuple(entries))


class ManifestOfARank(PipelineEngine):
    """Lists what this rank holds."""

    def weight_manifest(self, stream: WeightStream = "weights") -> WeightManifest:
        return WeightManifest(
            entries=tuple(spec for spec in super().weight_manifest(stream).entries if spec.name in self.places)
        )

    def named_weights(self, bucket_bytes: int, stream: WeightStream = "weights") -> Iterator[WeightBucket]:
        return weight_stream(self.gather, super().weight_manifest(stream), bucket_bytes)


class AdapterIsEmpty(PlainEngine):
    """Has an adapter without matrices."""

    def weight_manifest(self, stream: WeightStream = "weights") -> WeightManifest:
        return WeightManifest(entries=(), stream=stream) if stream == "adapter" else super().weight_manifest(stream)


class ExportRounds(PlainEngine):
    """Exports fewer bits than it streams."""

    exporting = False

    def export_hf(self, directory: Path) -> None:
        self.exporting = True
        super().export_hf(directory)
        self.exporting = False

    def gather(self, names: Sequence[str]) -> Parts:
        whole = super().gather(names)
        return {name: tensor.float().double() for name, tensor in whole.items()} if self.exporting else whole


class BucketsTooLarge(PlainEngine):
    """Looks at a bucket's size after it is filled."""

    def named_weights(self, bucket_bytes: int, stream: WeightStream = "weights") -> Iterator[WeightBucket]:
        return super().named_weights(bucket_bytes + 400, stream)


class StaleStream(PlainEngine):
    """Streams the weights of the start for ever."""

    first: Parts | None = None

    def gather(self, names: Sequence[str]) -> Parts:
        current = super().gather(names)
        if self.first is None:
            self.first = {}
        for name, tensor in current.items():
            self.first.setdefault(name, tensor.clone())
        return {name: self.first[name].clone() for name in names}

    def initialize(self) -> None:
        super().initialize()
        self.gather([spec.name for spec in self.weight_manifest().sent])


class RanksStreamTheirOwn(PlainEngine):
    """Streams this rank's copy, which the second rank has changed."""

    def gather(self, names: Sequence[str]) -> Parts:
        super().gather(names)
        own = self.parameters("gather")
        return {name: own[name].detach() * (1 + 1e-9 * self.context.rank) for name in names}


_FOLLOWS = "test_the_stream_follows_the_manifest"
_WHOLE = "test_the_manifest_names_the_whole_checkpoint"

FAULTS = (
    fault(TiedSentTwice, "tied-weight-sent-twice", "a tied tensor is listed, never sent", _FOLLOWS),
    fault(TiedLeftOut, "tied-weight-left-out", "the manifest lists tied tensors with their twin", _WHOLE),
    fault(StreamReversed, "stream-order-differs", "the stream has the manifest's order", _FOLLOWS),
    fault(ShapeOfAShard, "shape-of-a-shard", "shapes are those of whole tensors", _WHOLE, world_size=2,
          layout={"vocab_parallel_size": 2}),
    fault(ManifestOfARank, "manifest-of-a-rank", "every rank tells the same manifest",
          "test_every_rank_tells_the_same_manifest", world_size=2),
    fault(AdapterIsEmpty, "adapter-is-empty", "an absent adapter has no stream", "test_an_absent_adapter_has_no_stream"),
    fault(ExportRounds, "export-rounds", "the export is the stream", "test_the_export_is_the_stream"),
    fault(BucketsTooLarge, "buckets-too-large", "a bucket keeps its size", "test_buckets_keep_their_size"),
    fault(StaleStream, "stale-stream", "the stream is the model after the update", "test_the_stream_is_the_model"),
    fault(RanksStreamTheirOwn, "ranks-stream-their-own", "every rank sees the same stream",
          "test_every_rank_sees_the_same_stream", world_size=2),
)  # fmt: skip
"""Engines that break a promise about manifest, stream or export."""
