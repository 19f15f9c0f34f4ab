import asyncio

import pytest
import torch
from rl_core.contracts.rollout import RolloutOutput, SamplingParams
from rl_core.contracts.sampler import FailureKind
from rl_core.errors import WeightSyncError
from rl_core.workers import generation
from rl_core.workers.rollout_rows import DEADLINE_KEY, SAMPLING_KEY, RolloutRow, pack_rows, unpack_rows
from rl_core.workers.rollout_session import RolloutSession
from rl_dataproto import DataProto, jagged_from_rows


class Engine:
    """Counts from the number of tokens there are up to 5, a token a turn; some requests wait, hang or raise."""

    has_log_probs = True

    def __init__(self, version=1, **behaviours):
        self.version, self.behaviours, self.requests, self.aborted = version, behaviours, [], set()

    async def generate(self, request):
        self.requests.append(request)
        behaviour = self.behaviours.get(request.request_id)
        if isinstance(behaviour, Exception):
            raise behaviour
        tokens, reason = [], "stop"
        while len(request.response_ids) + len(tokens) < 5:
            await asyncio.sleep(0.001)
            if behaviour == "hangs":
                await asyncio.sleep(3600)
            if request.request_id in self.aborted:
                reason = "abort"
                break
            if behaviour != "waits" or len(tokens) < 2:
                tokens.append(len(request.response_ids) + len(tokens))
        return RolloutOutput(
            request_id=request.request_id,
            token_ids=tuple(tokens),
            log_probs=(-1.0 * self.version,) * len(tokens),
            finish_reason="abort" if behaviour == "gives up" else reason,
            versions=((self.version, len(tokens)),),
        )

    async def abort(self, request_ids=None):
        self.aborted |= set(request_ids)


def batch(*rows, deadline_s=60.0):
    prompts = DataProto.from_dict(
        tensors={
            "prompts": jagged_from_rows([torch.tensor([7])] * len(rows), torch.int64),
            "seed": torch.arange(len(rows)),
        },
        meta_info={SAMPLING_KEY: SamplingParams(max_tokens=5), DEADLINE_KEY: deadline_s},
    )
    return prompts.union(pack_rows(rows, has_log_probs=True))


def new(*names):
    return [RolloutRow(request_id=name) for name in names]


async def everything(session):
    rows = []
    while session._in_flight:
        rows += unpack_rows(await session.poll(1.0))
    return {row.request_id: row for row in rows}


def test_rows_come_as_they_end_and_only_once():
    async def play():
        session = RolloutSession(Engine(b="waits"))
        assert len(await session.submit(batch(*new("a", "b")), version=1)) == 0
        first = unpack_rows(await session.poll(5.0))
        assert [row.request_id for row in first] == ["a"]
        assert first[0].token_ids.tolist() == [0, 1, 2, 3, 4]
        assert len(await session.poll(0.01)) == 0
        await session.abort()

    asyncio.run(play())


def test_a_cut_response_is_submitted_with_what_there_is():
    async def play():
        engine = Engine(b="waits")
        session = RolloutSession(engine)
        await session.submit(batch(*new("a", "b")), version=1)
        await asyncio.sleep(0.05)
        rows = {row.request_id: row for row in unpack_rows(await session.abort())}
        assert (rows["a"].finish_reason, rows["b"].finish_reason) == ("stop", "abort")
        assert rows["b"].token_ids.tolist() == [0, 1]
        assert rows["b"].seconds > 0.04

        later = Engine(version=3)
        session = RolloutSession(later)
        await session.submit(batch(rows["b"]), version=3)
        whole = (await everything(session))["b"]
        assert later.requests[0].response_ids == (0, 1)
        assert later.requests[0].required_version == 3
        assert whole.token_ids.tolist() == [0, 1, 2, 3, 4]
        assert whole.versions == ((1, 2), (3, 3))
        assert whole.log_probs.tolist() == [-1.0, -1.0, -3.0, -3.0, -3.0]

    asyncio.run(play())


def test_the_oldest_prompt_is_sent_first():
    async def play():
        engine = Engine()
        session = RolloutSession(engine)
        await session.submit(batch(*new("0000002-0", "0000001-1", "0000001-0")), version=1)
        await everything(session)
        assert [request.request_id for request in engine.requests] == ["0000001-0", "0000001-1", "0000002-0"]

    asyncio.run(play())


def test_failures_are_rows_of_their_own():
    async def play():
        session = RolloutSession(Engine(b=RuntimeError("broken"), c="gives up", d="hangs"))
        await session.submit(batch(*new("a", "b", "c", "d"), deadline_s=0.2), version=1)
        rows = await everything(session)
        assert rows["a"].failure is None
        assert rows["b"].failure.kind is FailureKind.ERROR
        assert "broken" in rows["b"].failure.detail
        assert "the engine ended the request after 5 tokens" in rows["c"].failure.detail
        assert rows["d"].failure.kind is FailureKind.LOST
        assert "no response within 0.2 s" in rows["d"].failure.detail

    asyncio.run(play())


def test_the_deadline_counts_what_earlier_requests_took():
    async def play():
        session = RolloutSession(Engine(a="hangs"))
        await session.submit(batch(RolloutRow(request_id="a", seconds=59.9)), version=1)
        async with asyncio.timeout(5):
            row = (await everything(session))["a"]
        assert row.failure.kind is FailureKind.LOST
        assert "within 60.0 s" in row.failure.detail

    asyncio.run(play())


def test_a_request_that_the_engine_does_not_give_back_is_lost(monkeypatch):
    monkeypatch.setattr(generation, "ABORT_DEADLINE_S", 0.05)

    async def play():
        session = RolloutSession(Engine(a="hangs"))
        await session.submit(batch(*new("a")), version=1)
        (row,) = unpack_rows(await session.abort())
        assert row.failure.kind is FailureKind.LOST
        assert "did not give the request back within 0.05 s of its abort" in row.failure.detail

    asyncio.run(play())


def test_stale_weights_are_no_matter_of_one_row():
    async def play():
        session = RolloutSession(Engine(a=WeightSyncError("stale")))
        await session.submit(batch(*new("a")), version=1)
        with pytest.raises(WeightSyncError, match="stale"):
            await session.poll(1.0)

    asyncio.run(play())
