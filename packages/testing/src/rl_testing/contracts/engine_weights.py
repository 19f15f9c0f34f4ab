"""The part of the engine suite about the weight stream and the export."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rl_core.contracts.engine import EngineRole, TrainingEngine
from rl_core.errors import ConfigError
from rl_dataproto import DataProto

from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import Row, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import EngineSuite, same_bits
from rl_testing.contracts.ranks import Ranks


class WeightsContract(EngineSuite):
    """What a generation engine is fed with."""

    def trained(self, world_size: int, batch: DataProto, rows: list[Row], *, tied: bool) -> Ranks[TrainingEngine]:
        """Engines after one update, so that no weight is what it was loaded with."""
        ranks = self.start(world_size, model=self.model_section(tied=tied))
        self.ask(ranks, calls.train, batches=[batch], loss_fn=PolicyLoss(num_tokens(rows)))
        return ranks

    def tied_cases(self) -> list[bool]:
        """Untied, and tied where the engine supports it."""
        return [False, True] if self.supports_tied_weights else [False]

    def test_the_manifest_names_the_whole_checkpoint(self, world_size: int) -> None:
        """Every tensor of the Hugging Face checkpoint is listed with its full shape; a tied one names its twin.

        If this fails: a name is the engine's own instead of the checkpoint's, a shape is that of a shard, or a tied
        tensor is left out, so that a receiver cannot know where it comes from.
        """
        for tied in self.tied_cases():
            ranks = self.start(world_size, model=self.model_section(tied=tied))
            manifest = self.ask(ranks, calls.stream)[0].manifest
            assert {spec.name: spec.shape for spec in manifest.entries} == dict(
                self.tensor_shapes(tied=tied, role=EngineRole.POLICY)
            )
            assert len(set(manifest.names)) == len(manifest.names)
            expected = dict(self.tied_names()) if tied else {}
            assert {spec.name: spec.tied_to for spec in manifest.entries if spec.tied_to} == expected

    def test_every_rank_tells_the_same_manifest(self, world_size: int) -> None:
        """Names, order, shapes, dtypes and owners are the same everywhere; owners are ranks of the group.

        If this fails: the manifest is made from what a rank holds, instead of from the model.
        """
        manifests = [stream.manifest for stream in self.ask(self.start(world_size), calls.stream)]
        assert manifests == [manifests[0]] * world_size
        for spec in manifests[0].entries:
            assert spec.owner_ranks, f"{spec.name} belongs to no rank"
            assert set(spec.owner_ranks) <= set(range(world_size)), spec

    def test_the_stream_follows_the_manifest(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """Exactly the entries that are not tied come, once each, whole, in order, in the promised dtype.

        If this fails: a tied tensor is sent as well, or nothing is sent in its place; a shard is sent as a whole
        tensor; or stream and manifest walk over the parameters in different orders.
        """
        for tied in self.tied_cases():
            for stream in self.ask(self.trained(world_size, batch, rows, tied=tied), calls.stream):
                sent = [name for bucket in stream.buckets for name in bucket]
                assert sent == [spec.name for spec in stream.manifest.sent]
                for spec in stream.manifest.sent:
                    assert tuple(stream.weights[spec.name].shape) == spec.shape, spec.name
                    assert str(stream.weights[spec.name].dtype) == f"torch.{spec.dtype}", spec.name

    def test_every_rank_sees_the_same_stream(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """Buckets, values and digests are equal on every rank, and in a second pass.

        If this fails: ranks have drifted apart, a rank streams its own copy while it is still being updated, or a
        gathered tensor is cut differently on some ranks.
        """
        ranks = self.trained(world_size, batch, rows, tied=False)
        first, second = self.ask(ranks, calls.stream), self.ask(ranks, calls.stream)
        for stream in [*first, *second]:
            assert stream.buckets == first[0].buckets
            assert stream.digest == first[0].digest
            assert same_bits(stream.weights, first[0].weights) == []

    @pytest.mark.parametrize("bucket_bytes", [1, 3000, 1 << 30])
    def test_buckets_keep_their_size(self, world_size: int, bucket_bytes: int) -> None:
        """A bucket holds at most ``bucket_bytes``, or one larger tensor; buckets are numbered from 0, none empty.

        If this fails: the bucket is filled before its size is looked at, so a generator's memory is exceeded.
        """
        for stream in self.ask(self.start(world_size), calls.stream, bucket_bytes=bucket_bytes):
            assert stream.indices == list(range(len(stream.buckets)))
            assert all(stream.buckets)
            for names, size in zip(stream.buckets, stream.bytes, strict=True):
                assert len(names) == 1 or size <= bucket_bytes

    def test_the_stream_is_the_model(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """After an update, the streamed weights give the log-probs of the engine, tied or not.

        If this fails: the stream holds weights from before the update, or, tied, one of two copies that differ.
        """
        for tied in self.tied_cases():
            ranks = self.trained(world_size, batch, rows, tied=tied)
            found = self.scores(ranks, batch, {"log_probs"})["log_probs"]
            self.assert_close(found, self.reference_columns(self.weights(ranks), rows)["log_probs"], "log_probs")

    def test_the_export_is_the_stream(self, world_size: int, rows: list[Row], batch: DataProto, tmp_path: Path) -> None:
        """The exported checkpoint has ``config.json`` and, bit for bit, the tensors of the stream.

        If this fails: the export is written from one rank's shards, or a tied tensor is written with other values.
        """
        for tied in self.tied_cases():
            ranks = self.trained(world_size, batch, rows, tied=tied)
            directory = tmp_path / f"tied_{tied}"
            self.ask(ranks, calls.export, directory=directory)
            exported, streamed = self.read_export(directory), self.weights(ranks)
            assert (directory / "config.json").is_file()
            for name, twin in (self.tied_names() if tied else {}).items():
                assert torch.equal(exported.pop(name, streamed[twin]), streamed[twin])
            assert same_bits(exported, streamed) == []

    def test_an_absent_adapter_has_no_stream(self, world_size: int) -> None:
        """Asked for ``adapter``, an engine without one refuses; with one, the stream holds its matrices only.

        If this fails: the engine streams all weights, or nothing, under the name of the adapter.
        """
        ranks = self.start(world_size)
        for outcome in self.refusals(ranks, calls.adapter_names):
            if self.supports_adapter:
                assert outcome, "the adapter's manifest is empty"
                assert not set(outcome) & set(self.tensor_shapes(tied=False, role=EngineRole.POLICY))
            else:
                assert isinstance(outcome, ConfigError), outcome
