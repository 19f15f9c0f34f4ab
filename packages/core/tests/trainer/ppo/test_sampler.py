from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.contracts.rollout import SamplingParams
from rl_core.contracts.sampler import GroupStatus
from rl_core.data.loader import PromptLoader
from rl_core.errors import CheckpointError, MissingRolloutError, ShapeError
from rl_core.metrics import Metric
from rl_core.trainer.ppo.sampler import SyncSampler, extras_as_columns, make_prompts, prompt_groups
from rl_core.trainer.ppo.step import METRICS_KEY
from rl_core.workers.generation import EXTRAS_KEY
from rl_dataproto import DataProto, jagged_from_rows, object_array

ITEMS = [{"prompt_ids": [5] * (i + 1), "raw_prompt": f"p{i}", "data_source": "d", "index": i} for i in range(4)]


def config(n=2, limit=0.5, greedy=False):
    rollout = SimpleNamespace(
        n=n,
        temperature=0.7,
        top_p=0.9,
        top_k=8,
        response_length=None,
        ignore_eos=False,
        min_tokens=1,
        stop=["."],
        stop_token_ids=[9],
        greedy_baseline=greedy,
    )
    return SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(rollout=rollout),
        data=SimpleNamespace(max_response_length=6),
        trainer=SimpleNamespace(seed=3, rollout_deadline_s=9.0, max_failed_rollout_fraction=limit),
    )


def answer(failed=()):
    """A generation engine that answers [1, 2] to everything but the failed requests."""

    def generate(prompts):
        errors = [("lost" if str(i) in failed else None) for i in prompts.non_tensor_batch["request_id"]]
        responses = [torch.tensor([] if error else [1, 2], dtype=torch.int64) for error in errors]
        return DataProto.from_dict(
            tensors={"responses": jagged_from_rows(responses)},
            non_tensors={
                "rollout_error": np.array(errors, dtype=object),
                EXTRAS_KEY: object_array([{} if error else {"ranks": np.array([3, 4])} for error in errors]),
            },
            meta_info={METRICS_KEY: {"rollout/weight_version": [Metric(4, "max"), Metric(4, "max")]}},
        )

    return generate


def sampler(generate, **overrides):
    loader = PromptLoader(ITEMS, batch_size=2, epochs=1, shuffle=False, seed=0)
    return SyncSampler(config(**overrides), loader, generate)


def test_rows_of_a_prompt_stand_side_by_side_with_uids_and_seeds_of_their_own():
    prompts = make_prompts(ITEMS[:2], step=3, seed=1, num_samples=2, sampling=SamplingParams(), deadline_s=1.0)

    assert prompts.non_tensor_batch["uid"].tolist() == ["0000003-000000"] * 2 + ["0000003-000001"] * 2
    assert prompts.non_tensor_batch["request_id"].tolist()[:2] == ["0000003-000000-0", "0000003-000000-1"]
    assert [row.tolist() for row in prompts.batch["prompts"].unbind()] == [[5], [5], [5, 5], [5, 5]]
    assert len(set(prompts.batch["seed"].tolist())) == 4
    again = make_prompts(ITEMS[:2], step=3, seed=1, num_samples=2, sampling=SamplingParams(), deadline_s=1.0)
    assert torch.equal(again.batch["seed"], prompts.batch["seed"])


def test_next_joins_prompts_and_responses():
    source = sampler(answer())
    batch = source.next()

    assert len(batch) == 4
    assert batch.non_tensor_batch["raw_prompt"].tolist() == ["p0", "p0", "p1", "p1"]
    assert [group.status for group in source.groups] == [GroupStatus.FINISHED] * 2
    metrics = batch.meta_info[METRICS_KEY]
    assert metrics["rollout/failed"].value == 0
    assert metrics["rollout/weight_version"].value == 4
    assert [row.tolist() for row in batch.batch["extras/ranks"].unbind()] == [[3, 4]] * 4
    source.next()
    with pytest.raises(StopIteration):
        source.next()


def test_extras_that_do_not_fit_their_response_are_refused():
    outputs = DataProto.from_dict(
        tensors={"responses": jagged_from_rows([torch.tensor([1, 2])])},
        non_tensors={EXTRAS_KEY: object_array([{"ranks": np.array([3])}])},
    )
    with pytest.raises(ShapeError, match=r"row 0: extras \{'ranks': 1\} .*\(2 tokens\)"):
        extras_as_columns(outputs)


def test_failed_responses_are_left_out_and_counted():
    source = sampler(answer(failed={"0000000-000000-1"}))
    batch = source.next()

    assert batch.non_tensor_batch["raw_prompt"].tolist() == ["p0", "p1", "p1"]
    assert source.groups[0].num_failed == 1
    assert source.groups[0].errors == ("lost",)
    assert batch.meta_info[METRICS_KEY]["rollout/failed"].value == 1
    assert batch.meta_info[METRICS_KEY]["rollout/failed_groups"].value == 0


def test_a_group_without_any_response_has_failed():
    source = sampler(answer(failed={"0000000-000001-0", "0000000-000001-1"}))
    source.next()
    assert [group.status for group in source.groups] == [GroupStatus.FINISHED, GroupStatus.FAILED]


def test_too_many_failures_stop_the_run_and_name_the_groups():
    with pytest.raises(MissingRolloutError, match=r"1 of 4 rollouts failed.*0000000-000000: lost"):
        sampler(answer(failed={"0000000-000000-1"}), limit=0.2).next()


def test_state_goes_on_with_the_next_uids_and_rows():
    first = sampler(answer())
    first.next()
    second = sampler(answer())
    second.load_state_dict(first.state_dict())

    assert second.next().non_tensor_batch["uid"].tolist() == first.next().non_tensor_batch["uid"].tolist()


def test_a_greedy_row_is_the_last_of_its_prompt_and_changes_no_other():
    shared = {"step": 3, "seed": 1, "num_samples": 2, "sampling": SamplingParams(), "deadline_s": 1.0}
    without = make_prompts(ITEMS[:2], **shared)
    prompts = make_prompts(ITEMS[:2], **shared, greedy=SamplingParams(temperature=0.0))

    names, first, second = prompts.non_tensor_batch["request_id"].tolist(), "0000003-000000", "0000003-000001"
    assert names == [f"{uid}-{sample}" for uid in (first, second) for sample in (0, 1, "greedy")]
    sampled = prompts.select_idxs([0, 1, 3, 4])
    assert torch.equal(sampled.batch["seed"], without.batch["seed"])
    assert sampled.non_tensor_batch["request_id"].tolist() == without.non_tensor_batch["request_id"].tolist()
    assert len(set(prompts.batch["seed"].tolist())) == 6
    overrides = prompts.non_tensor_batch["sampling"].tolist()
    assert overrides == [None, None, SamplingParams(temperature=0.0)] * 2
    assert [group.size for group in prompt_groups(prompts)] == [2, 2]


def test_the_greedy_row_is_drawn_in_the_same_generation_without_cuts_of_the_distribution():
    seen = []

    def generate(prompts):
        seen.append(prompts.non_tensor_batch["sampling"].tolist())
        return answer()(prompts)

    batch = sampler(generate, greedy=True).next()
    ((*_, greedy),) = seen
    assert (greedy.temperature, greedy.top_p, greedy.top_k, greedy.max_tokens) == (0.0, 1.0, -1, 6)
    assert len(batch) == 6


def test_a_lost_greedy_row_is_no_failure_of_its_group():
    source = sampler(answer(failed={"0000000-000000-greedy", "0000000-000001-0", "0000000-000001-1"}), greedy=True)
    batch = source.next()
    assert [(group.size, group.num_failed, group.status) for group in source.groups] == [
        (2, 0, GroupStatus.FINISHED),
        (2, 2, GroupStatus.FAILED),
    ]
    assert batch.meta_info[METRICS_KEY]["rollout/failed"].value == 2
    assert len(batch) == 3


def test_sampling_parameters_come_from_the_configuration():
    seen = {}

    def generate(prompts):
        seen.update(prompts.meta_info)
        return answer()(prompts)

    sampler(generate).next()
    assert seen["sampling"] == SamplingParams(
        temperature=0.7, top_p=0.9, top_k=8, max_tokens=6, min_tokens=1, stop=(".",), stop_token_ids=(9,)
    )
    assert seen["deadline_s"] == 9.0


def test_failures_are_counted_by_kind_and_name_their_prompt(caplog):
    def generate(prompts):
        outputs = answer(failed={"0000000-000000-1", "0000000-000001-0"})(prompts)
        errors = outputs.non_tensor_batch["rollout_error"]
        kinds = [None if error is None else ("lost", "malformed")[row > 1] for row, error in enumerate(errors)]
        outputs.non_tensor_batch["rollout_failure"] = object_array(kinds)
        return outputs

    batch = sampler(generate).next()
    metrics = batch.meta_info[METRICS_KEY]
    assert [metrics[f"rollout/{name}"].value for name in ("failed", "lost", "errors", "malformed")] == [2, 1, 0, 1]
    assert "rollout_failure" not in batch.non_tensor_batch
    assert "prompt 0000000-000000: 1 of 2 responses are missing (lost: lost)" in caplog.text


def test_prompts_in_flight_of_another_schedule_are_not_lost_silently():
    state = sampler(answer()).state_dict() | {"in_flight": [[0, 1]]}
    with pytest.raises(CheckpointError, match=r"1 prompts in flight.*trainer\.v1\.trainer_mode"):
        sampler(answer()).load_state_dict(state)
