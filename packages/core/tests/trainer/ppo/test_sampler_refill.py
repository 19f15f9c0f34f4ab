from types import SimpleNamespace

import pytest
import torch
from rl_core.contracts.sampler import GroupStatus
from rl_core.data.loader import PromptLoader
from rl_core.errors import CheckpointError, MissingRolloutError
from rl_core.trainer.ppo.sampler import SyncSampler
from rl_core.trainer.ppo.sampler_refill import RefillingSampler
from rl_core.trainer.ppo.step import METRICS_KEY
from rl_core.workers.generation import EXTRAS_KEY
from rl_dataproto import DataProto, jagged_from_rows, object_array

ITEMS = [{"prompt_ids": [5] * (i + 1), "raw_prompt": f"p{i}", "data_source": "d", "index": i} for i in range(10)]


def config(limit=0.9):
    rollout = SimpleNamespace(
        n=2,
        temperature=1.0,
        top_p=1.0,
        top_k=-1,
        response_length=None,
        ignore_eos=False,
        min_tokens=0,
        stop=[],
        stop_token_ids=[],
        greedy_baseline=False,
    )
    return SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(rollout=rollout),
        data=SimpleNamespace(max_response_length=6),
        trainer=SimpleNamespace(seed=3, rollout_deadline_s=9.0, max_failed_rollout_fraction=limit),
    )


class Engine:
    """Answers [1, 2] to everything but the prompts that fail, and remembers what it was asked."""

    def __init__(self, *fails, rows=()):
        self.fails, self.rows, self.asked = fails, rows, []

    def __call__(self, prompts):
        columns = prompts.non_tensor_batch
        self.asked.append(list(dict.fromkeys(columns["raw_prompt"].tolist())))
        errors = [
            "broken" if prompt in self.fails or name in self.rows else None
            for prompt, name in zip(columns["raw_prompt"], columns["request_id"], strict=True)
        ]
        return DataProto.from_dict(
            tensors={"responses": jagged_from_rows([torch.tensor([1, 2])[: 2 * (not error)] for error in errors])},
            non_tensors={"rollout_error": object_array(errors), EXTRAS_KEY: object_array([{} for _ in errors])},
        )


def sampler(engine, kind=RefillingSampler, size=3, epochs=1, **overrides):
    loader = PromptLoader(ITEMS[: 3 * size], batch_size=size, epochs=epochs, shuffle=False, seed=0)
    return kind(config(**overrides), loader, engine)


def prompts_of(batch):
    return list(dict.fromkeys(batch.non_tensor_batch["raw_prompt"].tolist()))


def test_without_failures_it_is_the_synchronous_sampler():
    mine, plain = sampler(Engine()), sampler(Engine(), SyncSampler)
    for _ in range(3):
        batch, wanted = mine.next(), plain.next()
        assert batch.non_tensor_batch["request_id"].tolist() == wanted.non_tensor_batch["request_id"].tolist()
        assert batch.batch["seed"].tolist() == wanted.batch["seed"].tolist()
        assert batch.meta_info[METRICS_KEY]["rollout/refilled_groups"].value == 0
    with pytest.raises(StopIteration):
        mine.next()


def test_a_prompt_without_any_response_is_replaced_and_the_rest_of_its_draw_waits():
    engine = Engine("p1", rows=("0000000-000002-0",))
    source = sampler(engine)
    batch = source.next()
    assert engine.asked == [["p0", "p1", "p2"], ["p3"]]
    assert batch.non_tensor_batch["raw_prompt"].tolist() == ["p0", "p0", "p2", "p3", "p3"]
    metrics = batch.meta_info[METRICS_KEY]
    counted = ("refilled_groups", "failed_groups", "failed")
    assert [metrics[f"rollout/{name}"].value for name in counted] == [1, 1, 3]
    assert [group.status for group in source.groups].count(GroupStatus.FAILED) == 1
    assert prompts_of(source.next()) == ["p4", "p5", "p6"]
    # Of nine prompts two are left: no batch of three.
    with pytest.raises(StopIteration):
        source.next()


def test_a_fresh_prompt_that_fails_is_replaced_too_but_never_more_than_a_batch_of_them():
    engine = Engine("p0", "p3", "p4")
    assert prompts_of(sampler(engine).next()) == ["p1", "p2", "p5"]
    assert engine.asked == [["p0", "p1", "p2"], ["p3"], ["p4"], ["p5"]]
    engine = Engine("p0", "p3", "p4", "p5")
    assert prompts_of(sampler(engine).next()) == ["p1", "p2"]
    assert engine.asked == [["p0", "p1", "p2"], ["p3"], ["p4"], ["p5"]]


def test_data_that_ends_leaves_the_last_batch_smaller():
    engine = Engine("p8")
    source = sampler(engine)
    seen = [prompts_of(source.next()) for _ in range(3)]
    assert seen[-1] == ["p6", "p7"]


def test_failed_prompts_count_with_the_fresh_ones():
    # 2 of 6 responses, then 2 of 8: the share is taken after each generation.
    assert len(sampler(Engine("p0"), limit=0.34).next()) == 6
    with pytest.raises(MissingRolloutError, match="2 of 6 rollouts failed"):
        sampler(Engine("p0"), limit=0.3).next()
    with pytest.raises(MissingRolloutError, match="4 of 8 rollouts failed"):
        sampler(Engine("p0", "p3"), limit=0.4).next()


def test_resuming_goes_on_with_the_prompts_that_waited():
    straight = sampler(Engine("p1"))
    straight.next()
    state = straight.state_dict()
    assert state["in_flight"] == [[1, 1], [1, 2]]
    resumed = sampler(Engine("p1"))
    resumed.load_state_dict(state)
    for _ in range(1):
        mine, wanted = resumed.next(), straight.next()
        assert mine.non_tensor_batch["request_id"].tolist() == wanted.non_tensor_batch["request_id"].tolist()
        assert mine.batch["seed"].tolist() == wanted.batch["seed"].tolist()
    assert resumed.state_dict() == straight.state_dict()
    with pytest.raises(CheckpointError, match="sync_refill_failed_groups"):
        sampler(Engine(), SyncSampler).load_state_dict(state)
