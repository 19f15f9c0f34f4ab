"""The lead's side of a hand-over, with workers that only answer; and one real engine cut over two workers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import torch
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSlice, WeightSpec
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import bit_sum
from rl_resharding.inboxes import LocalInbox
from rl_resharding.shared_memory import SharedMemoryOutbox
from rl_rollout_vllm.sink import make_sinks

VALUES = torch.arange(12.0).reshape(6, 2)
MANIFEST = WeightManifest(entries=(WeightSpec(name="w", shape=(6, 2), dtype="float32"),))
DIGEST = {"w": bit_sum(VALUES)}


def share(rank: int, num_ranks: int) -> dict[str, Any]:
    """What a worker says that holds some rows of ``w``."""
    rows = 6 // num_ranks
    part = [rows * 2, rank * rows * 2, rows, 2]
    return {
        "params": {"w": {"sources": {"w": [part]}, "dtype": "float32", "exact": True}},
        "refused": {},
        "missing": [],
    }


class Client:
    """An engine whose workers read what comes, each its rows."""

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        self.calls: list[str] = []
        self.version: int | None = 5
        self.is_paused = False
        self.is_idle = False
        self.fails_at: str | None = None
        self.dies_at: str | None = None
        self.flips = False
        self.inbox = LocalInbox()
        self.received: torch.Tensor | None = None

    async def rpc(self, method: str, *args: Any) -> list[Any]:
        self.calls.append(method)
        if method == self.dies_at:
            msg = "the engine died"
            raise RuntimeError(msg)
        errors = [None] * (self.num_ranks - 1) + ["out of order" if method == self.fails_at else None]
        return [json.dumps({"error": error, **self.answer(method, rank, args)}) for rank, error in enumerate(errors)]

    def answer(self, method: str, rank: int, args: tuple[Any, ...]) -> dict[str, Any]:
        if method == "rl_weights_fit":
            return share(rank, self.num_ranks)
        if method == "rl_weights_put":
            self.received = self.inbox.open(args[0]).slices[0].tensor.clone()
        if method == "rl_weights_end":
            rows = self.received.chunk(self.num_ranks)[rank]
            return {"sums": {"w": bit_sum(rows) + (self.flips and rank == self.num_ranks - 1)}}
        return {}

    async def pause(self) -> None:
        self.calls.append("pause")
        self.is_paused = True

    async def resume(self) -> None:
        self.calls.append("resume")
        self.is_paused = False

    async def reset_prefix_cache(self) -> None:
        self.calls.append("reset_prefix_cache")

    def set_version(self, version: int | None) -> None:
        self.calls.append(f"version {version}")
        self.version = version


@pytest.fixture(params=[1, 2, 3])
def client(request):
    return Client(request.param)


@pytest.fixture
def sinks(client):
    return make_sinks(client, num_ranks=client.num_ranks, device=torch.device("cpu"), bucket_bytes=1 << 10)


async def together(sinks: Any, step: str, *arguments: Any) -> None:
    outcomes = await asyncio.gather(
        *(getattr(sink, step)(*arguments) for sink in sinks.values()), return_exceptions=True
    )
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def hand_over(sinks: Any, version: int = 6, bucket: WeightBucket | None = None) -> None:
    await together(sinks, "begin", version, MANIFEST)
    await together(sinks, "put", bucket or WeightBucket((WeightSlice("w", VALUES),)))
    await together(sinks, "end", DIGEST)


def test_one_call_tells_all_workers_and_the_version_comes_last(client, sinks):
    asyncio.run(hand_over(sinks))
    assert client.calls == [
        "version None",
        "rl_weights_fit",
        "pause",
        "rl_weights_begin",
        "rl_weights_put",
        "rl_weights_end",
        "reset_prefix_cache",
        "version 6",
        "resume",
    ]
    assert torch.equal(client.received, VALUES)


def test_an_idle_engine_is_not_paused_which_would_take_longer_than_the_update(client, sinks):
    client.is_idle = True
    asyncio.run(hand_over(sinks))
    assert not {"pause", "resume"} & set(client.calls)
    assert client.calls[-1] == "version 6"


def test_who_paused_resumes(client, sinks):
    client.is_paused = True
    asyncio.run(hand_over(sinks))
    assert client.is_paused
    assert not {"pause", "resume"} & set(client.calls)


def test_a_bucket_that_is_staged_already_is_not_copied_again(client, sinks, monkeypatch):
    outbox = SharedMemoryOutbox(1 << 10)
    staged = outbox.stage(WeightBucket((WeightSlice("w", VALUES),)))
    monkeypatch.setattr(SharedMemoryOutbox, "stage", None)
    asyncio.run(hand_over(sinks, bucket=staged))
    assert client.version == 6
    outbox.close()


@pytest.mark.parametrize("where", ["rl_weights_fit", "rl_weights_begin", "rl_weights_put", "rl_weights_end"])
def test_a_worker_that_refuses_ends_the_hand_over_everywhere(client, sinks, where):
    client.fails_at = where
    with pytest.raises(WeightSyncError, match=f"worker {client.num_ranks - 1}: out of order"):
        asyncio.run(hand_over(sinks))
    assert (client.version, client.is_paused) == (None, False)
    assert ("rl_weights_abort" in client.calls) == (where != "rl_weights_fit")
    client.fails_at = None
    asyncio.run(hand_over(sinks, 7))
    assert client.version == 7


def test_an_engine_that_dies_is_left_alone(client, sinks):
    client.dies_at = "rl_weights_put"
    with pytest.raises(RuntimeError, match="died"):
        asyncio.run(hand_over(sinks))
    assert (client.version, client.is_paused) == (None, False)


def test_values_that_a_worker_stored_wrongly_are_found(client, sinks):
    client.flips = True
    with pytest.raises(WeightSyncError, match="stored wrongly by vLLM: \\['w'\\]"):
        asyncio.run(hand_over(sinks))
    assert client.version is None


def test_the_version_waits_for_every_rank(client, sinks):
    async def all_but_the_last() -> None:
        await together(sinks, "begin", 6, MANIFEST)
        await together(sinks, "put", WeightBucket((WeightSlice("w", VALUES),)))
        last = sinks[client.num_ranks - 1]
        for sink in sinks.values():
            if sink is not last:
                await sink.end(DIGEST)
        assert client.version is None
        await last.end(DIGEST)

    asyncio.run(all_but_the_last())
    assert client.version == 6


def test_weights_outside_of_a_hand_over_are_refused(client, sinks):
    with pytest.raises(WeightSyncError, match="call begin first"):
        asyncio.run(sinks[0].put(WeightBucket((WeightSlice("w", VALUES),))))
    with pytest.raises(WeightSyncError, match="call begin first"):
        asyncio.run(sinks[0].end(DIGEST))


def test_an_abort_without_a_hand_over_makes_the_weights_unusable(client, sinks):
    asyncio.run(sinks[0].abort("a rank was lost"))
    assert client.version is None


def test_adapters_are_refused_where_none_are_served(client, sinks):
    with pytest.raises(WeightSyncError, match="takes weights"):
        asyncio.run(sinks[0].begin(6, WeightManifest(entries=MANIFEST.entries, stream="adapter")))


@pytest.mark.heavy
@pytest.mark.engines
def test_two_workers_take_their_slices(serve):
    """Greedy answers of a replica of two tensor-parallel workers, before and after an update."""
    from rl_testing.contracts.replica import ask

    replica = serve(num_ranks=2)
    answers = []
    for version in (1, 2):
        replica.sync(version, pieces=version)
        sampled = replica.output(ask((5, 3, 9, 4), max_tokens=8, temperature=0.0)).token_ids
        ids = [5, 3, 9, 4]
        for _ in sampled:
            ids.append(int(replica.policy.logits(version, ids)[-1].argmax()))
        assert list(sampled) == ids[4:]
        answers.append(sampled)
    assert answers[0] != answers[1]
