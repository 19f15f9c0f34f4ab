from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSlice, WeightSpec
from rl_core.errors import WeightSyncError
from rl_core.plugins.records import RolloutRecord
from rl_core.plugins.registry import Registry
from rl_core.resharding.digest import bit_sum
from rl_core.resharding.intake import Intake
from rl_core.single_controller.base.collective import WorkerContext
from rl_core.workers.async_runner import AsyncRunner
from rl_resharding.movers import StagedResharding
from rl_resharding.plugin import rl_plugins
from rl_resharding.shared_memory import SharedMemoryOutbox
from rl_resharding.transport import StagedBucket
from rl_testing.contracts.ranks import ThreadRanks
from rl_testing.fakes.resharding_sections import FakeReshardingContract, PipelineReshardingContract
from rl_testing.fakes.sliced_rollout import SlicedRollout


class TestStaged(FakeReshardingContract):
    resharding_class = StagedResharding


class TestStagedFromAPipeline(PipelineReshardingContract):
    resharding_class = StagedResharding


class AbroadSink:
    """Lets another process open each bucket, and hands on what that one read."""

    def __init__(self, sink: Any, receiver: Any) -> None:
        self._sink, self._receiver = sink, receiver
        self.begin, self.end, self.abort = sink.begin, sink.end, sink.abort

    async def put(self, bucket: WeightBucket) -> None:
        assert isinstance(bucket, StagedBucket)
        await self._sink.put(WeightBucket(self._receiver.open(bucket.handle), bucket.index))


@pytest.mark.heavy
class TestStagedToAnotherProcess(FakeReshardingContract):
    resharding_class = StagedResharding
    layouts = ((1, 1), (2, 1))

    @pytest.fixture(autouse=True)
    def _receiver(self, receiver):
        lock = threading.Lock()

        class Shared:
            def open(self, handle: bytes) -> Any:
                with lock:
                    return receiver.open(handle)

        class AbroadRollout(SlicedRollout):
            def weight_sinks(self) -> Any:
                return {rank: AbroadSink(sink, Shared()) for rank, sink in super().weight_sinks().items()}

        self.rollout_class = AbroadRollout


DEADLINE_S = 30.0


class Stream:
    """A trainer with buckets of one tensor, all in the same memory, as gathers may give them."""

    def __init__(self, num_buckets: int, before: Any = lambda index: None) -> None:
        self.values = [torch.full((64,), float(index)) for index in range(num_buckets)]
        self.before = before

    def weight_manifest(self, stream: str) -> WeightManifest:
        return WeightManifest(
            entries=tuple(
                WeightSpec(name=f"w{index}", shape=(64,), dtype="float32") for index in range(len(self.values))
            )
        )

    def named_weights(self, bucket_bytes: int, stream: str) -> Iterator[WeightBucket]:
        gathered = torch.empty(64)
        for index, value in enumerate(self.values):
            self.before(index)
            gathered.copy_(value)
            yield WeightBucket((WeightSlice(f"w{index}", gathered),), index)


class Sink:
    """Checks what comes; ``during`` is called while it reads a bucket."""

    def __init__(self, during: Any = lambda bucket: None) -> None:
        self.during = during
        self.version: int | None = None
        self.aborted: list[str] = []

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        self.intake = Intake(version, manifest)

    async def put(self, bucket: WeightBucket) -> None:
        import asyncio

        await asyncio.to_thread(self.during, bucket)
        self.intake.accept(bucket)

    async def end(self, digest: Any) -> None:
        self.intake.check_complete(digest)
        self.version = self.intake.version

    async def abort(self, reason: str) -> None:
        self.version = None
        self.aborted.append(reason)


@pytest.fixture
def move():
    """Moves one version from a stream to a sink."""
    runner = AsyncRunner("mover", deadline_s=DEADLINE_S)

    def move(stream: Stream, sink: Sink, mover: type[StagedResharding] = StagedResharding) -> Any:
        class Rollout:
            def weight_streams(self) -> Any:
                return ("weights",)

            def weight_sinks(self) -> Any:
                return {0: sink}

        def build(context: WorkerContext) -> Any:
            return mover(stream, Rollout(), phases=None, run=runner.run, context=context, bucket_bytes=1 << 10)

        ranks = ThreadRanks(1, build, dispose=lambda held: None, deadline_s=DEADLINE_S)
        try:
            return ranks.run(0, lambda held: held.move(7))
        finally:
            ranks.close()

    yield move
    runner.close()


def test_the_next_bucket_is_gathered_while_the_last_is_read(move):
    """Each reader waits for the next gather to begin, and would wait for ever if one came after the other."""
    gathering = [threading.Event() for _ in range(6)]

    def during(bucket: WeightBucket) -> None:
        if bucket.index + 1 < len(gathering):
            assert gathering[bucket.index + 1].wait(DEADLINE_S)

    sink = Sink(during)
    report = move(Stream(6, before=lambda index: gathering[index].set()), sink)
    assert sink.version == 7
    assert (report.num_tensors, report.num_bytes) == (6, 6 * 256)
    assert sink.intake.digest == {f"w{index}": bit_sum(torch.full((64,), float(index))) for index in range(6)}


def test_a_byte_that_changes_in_the_buffer_is_found(move):
    def flip(bucket: WeightBucket) -> None:
        if bucket.index == 2:
            bucket.slices[0].tensor.view(torch.uint8)[5] ^= 1

    sink = Sink(flip)
    with pytest.raises(WeightSyncError, match=r"digest differs.*w2"):
        move(Stream(4), sink)
    assert sink.version is None


def test_a_buffer_that_is_used_too_early_is_found(move, monkeypatch):
    """The suite's own ground: with one buffer, gathering ahead overwrites what is being read."""
    staged = [threading.Event() for _ in range(4)]
    stage = SharedMemoryOutbox.stage

    def careless(self: Any, bucket: WeightBucket) -> Any:
        self._turn = 0
        result = stage(self, bucket)
        staged[bucket.index].set()
        return result

    def during(bucket: WeightBucket) -> None:
        if bucket.index < 3:
            assert staged[bucket.index + 1].wait(DEADLINE_S)

    monkeypatch.setattr(SharedMemoryOutbox, "stage", careless)
    with pytest.raises(WeightSyncError, match="digest differs"):
        move(Stream(4), Sink(during))


@pytest.mark.parametrize("where", [0, 2, 5])
def test_a_refused_bucket_ends_the_hand_over_and_the_stream_is_drained(move, where):
    gathered = []

    def during(bucket: WeightBucket) -> None:
        if bucket.index == where:
            msg = f"no room for bucket {where}"
            raise RuntimeError(msg)

    sink = Sink(during)
    with pytest.raises(WeightSyncError, match=f"no room for bucket {where}"):
        move(Stream(6, before=gathered.append), sink)
    assert gathered == list(range(6))
    assert len(sink.aborted) == 1


def test_a_trainer_that_fails_waits_for_the_reader_before_it_aborts(move):
    order = []

    def before(index: int) -> None:
        if index == 2:
            msg = "lost a rank"
            raise RuntimeError(msg)

    class Ordered(Sink):
        async def put(self, bucket: WeightBucket) -> None:
            await super().put(bucket)
            order.append(bucket.index)

        async def abort(self, reason: str) -> None:
            order.append("abort")

    with pytest.raises(RuntimeError, match="lost a rank"):
        move(Stream(4, before=before), Ordered())
    assert order == [0, 1, "abort"]


def test_it_is_chosen_for_the_engines_it_is_for():
    registry = Registry()
    registry.load_entry_points()
    if "rl-resharding" not in {one.name for one in registry.distributions}:
        registry.register_distribution("rl-resharding", "0", rl_plugins())
    (record,) = rl_plugins()
    assert registry.load("resharding", record.name) is StagedResharding
    if "vllm" not in {entry.record.name for entry in registry.lookup.entries("rollout")}:
        engine = RolloutRecord(name="vllm", target="json:dumps", summary="Stands for the engine.")
        registry.register_distribution("stand-in", "0", [engine])
    chosen = registry.pairing("fsdp", "vllm")
    assert chosen.record.name == "staged"
    assert "made for one side of this pair, (*, vllm, flat_buffers)" in chosen.reason
    assert registry.pairing("fsdp", "hf").record.name == "generic"
