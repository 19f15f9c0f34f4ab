import asyncio
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from rl_core.contracts.rollout import RolloutOutput, SamplingParams
from rl_core.errors import RlError
from rl_core.metrics import Metric
from rl_core.workers.async_runner import AsyncRunner
from rl_core.workers.background_rollouts import BackgroundRollouts
from rl_core.workers.rollout_rows import DEADLINE_KEY, SAMPLING_KEY, RolloutRow, pack_rows, unpack_rows
from rl_dataproto import DataProto, jagged_from_rows


class Engine:
    has_log_probs = False

    def __init__(self, leads, hangs=False):
        self.leads, self.hangs = leads, hangs

    def dispatch_info(self):
        return SimpleNamespace(is_collect=self.leads)

    async def generate(self, request):
        if self.hangs:
            await asyncio.sleep(3600)
        return RolloutOutput(
            request_id=request.request_id, token_ids=(1,), log_probs=None, finish_reason="stop", versions=((2, 1),)
        )

    async def metrics(self):
        return {"rollout/preemptions": Metric(3, "sum")}

    async def abort(self, request_ids=None):
        raise RlError("the engine broke")


class Resharding:
    def __init__(self):
        self.log = []

    @contextmanager
    def generation(self, version):
        self.log.append(f"enter {version}")
        try:
            yield f"report of {version}"
            self.log.append("meet the others")
        finally:
            self.log.append("leave")


PROMPTS = DataProto.from_dict(
    tensors={"prompts": jagged_from_rows([torch.tensor([7])], torch.int64), "seed": torch.tensor([0])},
    meta_info={SAMPLING_KEY: SamplingParams(max_tokens=5), DEADLINE_KEY: 60.0},
).union(pack_rows([RolloutRow(request_id="a")], has_log_probs=False))


@pytest.fixture
def runner():
    runner = AsyncRunner("test", deadline_s=10.0)
    yield runner
    runner.close()


def test_the_phase_stays_open_from_the_first_submit_to_the_abort(runner):
    resharding = Resharding()
    background = BackgroundRollouts(Engine(leads=True), resharding, runner)
    background.require_closed("generate_sequences")
    assert background.submit(PROMPTS, version=2)[1] == "report of 2"
    with pytest.raises(RlError, match="generate_sequences was called while responses are generated"):
        background.require_closed("generate_sequences")
    (row,) = unpack_rows(background.poll(5.0))
    assert row.token_ids.tolist() == [1]
    # A second submit finds the devices as they are.
    assert background.submit(PROMPTS, version=2)[1] is None
    assert len(background.poll(5.0)) == 1
    assert resharding.log == ["enter 2"]
    assert len(background.abort()) == 0
    assert resharding.log == ["enter 2", "meet the others", "leave"]
    background.require_closed("generate_sequences")


def test_a_worker_that_does_not_lead_only_takes_part(runner):
    resharding = Resharding()
    background = BackgroundRollouts(Engine(leads=False), resharding, runner)
    assert background.submit(PROMPTS, version=2) == (None, "report of 2")
    assert background.poll(5.0) is None
    assert background.abort() is None
    assert resharding.log == ["enter 2", "meet the others", "leave"]


def test_the_devices_are_given_back_when_the_engine_breaks(runner):
    resharding = Resharding()
    background = BackgroundRollouts(Engine(leads=True, hangs=True), resharding, runner)
    background.submit(PROMPTS, version=2)
    with pytest.raises(RlError, match="the engine broke"):
        background.abort()
    assert resharding.log[-1] == "leave"
    background.require_closed("generate_sequences")


@pytest.mark.parametrize("call", [lambda background: background.poll(0.0), lambda background: background.abort()])
def test_nothing_to_poll_or_abort_before_a_submit(runner, call):
    background = BackgroundRollouts(Engine(leads=True), Resharding(), runner)
    with pytest.raises(RlError, match="call submit_rollouts first"):
        call(background)
