"""The reward model's worker on the fakes, in float64: the same numbers however its work is cut."""

import math

import numpy as np
import pytest
import torch
from rl_core.config import compose
from rl_core.contracts.mini_batch import PLAN_KEY
from rl_core.errors import WorkerError
from rl_core.runtime.local import LocalWorkerGroup
from rl_core.trainer.ppo.mini_batch_plan import plan_mini_batches
from rl_core.workers.phases import Part
from rl_dataproto import DataProto, jagged_from_rows
from rl_recipes.prime.worker import PrimeRewardModelWorker
from safetensors.torch import load_file

RUN = [
    "recipe=prime",
    "actor_rollout_ref.model.path=tiny",
    "actor_rollout_ref.actor.strategy=fake",
    "actor_rollout_ref.rollout.name=fake",
    "data.train_files=train.jsonl",
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "reward_model.optim.optimizer=SGD",
    "reward_model.optim.lr=2.0",
    "reward_model.prime.beta=0.5",
]
LAYOUTS = {
    "two workers": (2, []),
    "four workers": (4, []),
    "one response a pass": (1, ["reward_model.micro_batch_size_per_gpu=1"]),
    "three responses a pass, two workers": (2, ["reward_model.micro_batch_size_per_gpu=3"]),
    "few tokens a pass": (2, ["reward_model.forward_max_token_len_per_gpu=12"]),
    "pipeline": (2, ["reward_model.strategy=fake-pipeline"]),
    "pipeline of two stages with two shares of the vocabulary": (4, ["reward_model.strategy=fake-pipeline"]),
    "offloaded": (
        2,
        ["reward_model.fake_config.param_offload=true", "reward_model.fake_config.optimizer_offload=true"],
    ),
}


@pytest.fixture
def make():
    groups = []

    def made(workers=1, *more):
        config = compose([*RUN, f"trainer.n_gpus_per_node={workers}", *more]).tree
        groups.append(LocalWorkerGroup(PrimeRewardModelWorker, workers, config, total_training_steps=4, name="rm"))
        groups[-1].init_model()
        return groups[-1]

    yield made
    for group in groups:
        group.shutdown()


def rows_of(num_prompts=4, samples=3, seed=0, outcomes=(0.0, 1.0)):
    """Responses of different lengths with an observation token in some; right ones hold token 5, wrong ones token 6."""
    random = np.random.default_rng(seed)
    prompts, responses, masks, scores = [], [], [], []
    for row in range(num_prompts * samples):
        length = int(random.integers(1, 6))
        right = row % 2
        prompts.append(torch.tensor(random.integers(8, 40, size=3)))
        responses.append(torch.tensor([5 if right else 6, *random.integers(8, 40, size=length)]))
        masks.append(torch.tensor([True, *([length < 4] * length)]))
        scores.append(torch.tensor([outcomes[right], *[0.0] * length]))
    batch = DataProto.from_dict(
        tensors={
            "prompts": jagged_from_rows(prompts, torch.int64),
            "responses": jagged_from_rows(responses, torch.int64),
            "input_ids": jagged_from_rows(
                [torch.cat(pair) for pair in zip(prompts, responses, strict=True)], torch.int64
            ),
            "response_mask": jagged_from_rows(masks, torch.bool),
            "token_level_scores": jagged_from_rows(scores, torch.float32),
        },
        non_tensors={"uid": np.array([f"p{row // samples}" for row in range(num_prompts * samples)], dtype=object)},
    )
    return batch


def planned(batch, epochs=1):
    batch = batch.select()
    batch.meta_info[PLAN_KEY] = plan_mini_batches(
        batch.non_tensor_batch["uid"],
        np.array([int(mask.sum()) for mask in batch.batch["response_mask"].unbind()]),
        mini_batch_size=2,
        epochs=epochs,
        shuffle=False,
        seed=(1, 1),
        max_response_length=6,
    )
    return batch


def trained(group, folder):
    """Score, update, score again: both scores, the metrics, the weights."""
    batch = rows_of()
    batch = batch.union(group.compute_rm_score(batch))
    metrics = group.update_reward_model(planned(batch))
    again = group.compute_rm_score(batch)
    group.export_hf(str(folder))
    return batch, metrics, again, load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    config = compose(RUN).tree
    group = LocalWorkerGroup(PrimeRewardModelWorker, 1, config, total_training_steps=4, name="rm")
    group.init_model()
    found = trained(group, tmp_path_factory.mktemp("reference"))
    group.shutdown()
    return found


def test_a_model_that_is_its_own_reference_rewards_nothing(reference):
    batch, metrics, _, _ = reference
    assert all(row.count_nonzero() == 0 for row in batch.batch["rm_scores"].unbind())
    assert len(batch.batch["rm_scores"].unbind()[0]) == len(batch.batch["responses"].unbind()[0])
    assert metrics["reward_model/optimizer_steps"].value == 2


def test_it_learns_to_tell_right_from_wrong(make):
    group = make()
    batch = rows_of()
    batch = batch.union(group.compute_rm_score(batch))
    first = group.update_reward_model(planned(batch))
    for _ in range(4):
        last = group.update_reward_model(planned(batch, epochs=3))
    assert last["reward_model/loss"].value < 0.5 * first["reward_model/loss"].value
    assert last["reward_model/accuracy"].value == pytest.approx(1.0)
    sums = [float(row.sum()) for row in group.compute_rm_score(batch).batch["rm_scores"].unbind()]
    assert all((value > 0) == bool(row % 2) for row, value in enumerate(sums))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_numbers_however_the_work_is_cut(layout, make, reference, tmp_path):
    workers, more = LAYOUTS[layout]
    batch, metrics, again, weights = trained(make(workers, *more), tmp_path)
    wanted_batch, wanted_metrics, wanted_again, wanted_weights = reference

    for mine, wanted in ((batch, wanted_batch), (again, wanted_again)):
        for column in ("rm_scores", "rm_ref_log_prob"):
            for one, two in zip(mine.batch[column].unbind(), wanted.batch[column].unbind(), strict=True):
                torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)
    assert set(metrics) == set(wanted_metrics)
    for name, metric in wanted_metrics.items():
        assert metrics[name].value == pytest.approx(metric.value, rel=1e-10, abs=1e-12), name
    for name, weight in wanted_weights.items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-10, atol=1e-12)


def test_observations_get_no_reward(make):
    group = make()
    batch = rows_of()
    batch = batch.union(group.compute_rm_score(batch))
    group.update_reward_model(planned(batch))
    scored = group.compute_rm_score(batch)
    pairs = zip(scored.batch["rm_scores"].unbind(), batch.batch["response_mask"].unbind(), strict=True)
    assert all(scores[~mask].count_nonzero() == 0 and scores[mask].count_nonzero() for scores, mask in pairs)


def test_a_second_scoring_spares_the_reference_its_pass(make):
    group = make()
    batch = rows_of()
    first = group.compute_rm_score(batch)
    assert "memory/reward_model/reward_reference_gib" in group.phase_metrics()[0]
    second = group.compute_rm_score(batch.union(first.select(batch_keys=["rm_ref_log_prob"])))
    assert "memory/reward_model/reward_reference_gib" not in group.phase_metrics()[0]
    assert all(
        torch.equal(one, two)
        for one, two in zip(
            first.batch["rm_ref_log_prob"].unbind(), second.batch["rm_ref_log_prob"].unbind(), strict=True
        )
    )


@pytest.mark.parametrize("offloaded", [True, False])
def test_nothing_stays_on_the_device_between_phases_if_it_is_to_leave(offloaded, make):
    group = make(1, *(f"reward_model.fake_config.{key}_offload={offloaded}" for key in ("param", "optimizer")))
    batch = rows_of()
    batch = batch.union(group.compute_rm_score(batch))
    group.update_reward_model(planned(batch))
    resident = group._workers[0].phases.resident()
    if offloaded:
        assert resident == frozenset()
    else:
        assert {(Part.REWARD_MODEL, "parameters"), (Part.REWARD_REFERENCE, "parameters")} <= resident


def test_a_checkpoint_goes_on_exactly(make, tmp_path):
    adam = "reward_model.optim.optimizer=AdamW"
    straight, stopped, resumed = make(1, adam), make(1, adam), make(1, adam)
    batch = rows_of()
    batch = planned(batch.union(straight.compute_rm_score(batch)))
    straight.update_reward_model(batch)
    straight.update_reward_model(batch)
    stopped.update_reward_model(batch)
    (tmp_path / "rm").mkdir()
    stopped.save_checkpoint(str(tmp_path / "rm"))
    resumed.load_checkpoint(str(tmp_path / "rm"))
    resumed.update_reward_model(batch)
    one, two = (group.compute_rm_score(batch).batch["rm_scores"].unbind() for group in (straight, resumed))
    assert all(torch.equal(mine, wanted) for mine, wanted in zip(two, one, strict=True))


def test_one_that_is_never_updated_has_no_optimizer(make):
    group = make(1, "reward_model.update=none")
    scores = group.compute_rm_score(rows_of()).batch["rm_scores"].unbind()
    assert all(row.count_nonzero() == 0 for row in scores)


@pytest.mark.parametrize(("outcomes", "first"), [((-1.0, 1.0), "-1"), ((0.0, 2.0), "2"), ((0.0, math.nan), "nan")])
def test_outcomes_that_are_neither_right_nor_wrong_are_refused(outcomes, first, make):
    group = make()
    batch = rows_of(outcomes=outcomes)
    batch = planned(batch.union(group.compute_rm_score(batch)))
    with pytest.raises(
        WorkerError, match=rf"6 of 12 rewards lie outside, the first is {first}\. Use a reward function"
    ):
        group.update_reward_model(batch)
