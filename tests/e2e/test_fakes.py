"""PPO and GRPO through every contract, with fakes as awkward as real engines (DESIGN promise 3)."""

import pytest
import torch
from fakes_training import train
from rl_core.errors import ConfigError

# Same numbers: all that the loss is made of, in float64. What depends on time or on the layout is left out.
COMPARED = ("actor/", "critic/", "response_length/", "training/logprob_gap")
LAYOUTS = {
    "plain-1": ["trainer.n_gpus_per_node=1"],
    "plain-2": ["trainer.n_gpus_per_node=2"],
    "plain-4": ["trainer.n_gpus_per_node=4"],
    "plain-2 replica of 2": ["trainer.n_gpus_per_node=2", "actor_rollout_ref.rollout.tensor_model_parallel_size=2"],
    "plain-4 two replicas of 2": [
        "trainer.n_gpus_per_node=4",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
    ],
    "pipeline-1": ["trainer.n_gpus_per_node=1", "PIPELINE"],
    "pipeline-2": ["trainer.n_gpus_per_node=2", "PIPELINE"],
    "pipeline-4": ["trainer.n_gpus_per_node=4", "PIPELINE"],
    "pipeline-4, replicas of 2": [
        "trainer.n_gpus_per_node=4",
        "PIPELINE",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
    ],
    "micro batch 1": ["trainer.n_gpus_per_node=2", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"],
    "every pass cut differently": [
        "trainer.n_gpus_per_node=2",
        "critic.ppo_micro_batch_size_per_gpu=1",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=20",
    ],
    "token budget": ["trainer.n_gpus_per_node=2", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24"],
    "offloaded": [
        "trainer.n_gpus_per_node=2",
        "actor_rollout_ref.actor.fake_config.param_offload=true",
        "actor_rollout_ref.actor.fake_config.optimizer_offload=true",
    ],
}
ALGORITHMS = {
    "ppo": [
        "algorithm.adv_estimator=gae",
        "actor_rollout_ref.actor.ppo_epochs=2",
        "actor_rollout_ref.actor.shuffle=true",
    ],
    "grpo": [
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.actor.use_kl_loss=true",
        "actor_rollout_ref.actor.entropy_coeff=0.01",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean",
    ],
}


def layout(name):
    pipeline = ["actor_rollout_ref.actor.strategy=fake-pipeline"]
    return [part for item in LAYOUTS[name] for part in (pipeline if item == "PIPELINE" else [item])]


@pytest.fixture(scope="module", params=ALGORITHMS)
def algorithm(request):
    return ALGORITHMS[request.param]


@pytest.fixture(scope="module")
def reference(algorithm, tmp_path_factory, installed_fakes):
    return train(tmp_path_factory.mktemp("reference"), *algorithm, *layout("plain-1"))


@pytest.mark.parametrize("name", list(LAYOUTS)[1:])
def test_the_same_losses_steps_and_weights_however_the_work_is_cut(name, algorithm, reference, tmp_path):
    run = train(tmp_path, *algorithm, *layout(name))

    assert len(run.metrics) == len(reference.metrics) == 2
    for ours, theirs in zip(run.metrics, reference.metrics, strict=True):
        compared = [key for key in theirs if key.startswith(COMPARED)]
        assert set(compared) == {key for key in ours if key.startswith(COMPARED)}
        for key in compared:
            assert ours[key] == pytest.approx(theirs[key], rel=1e-10, abs=1e-12), key
    for mine, wanted in ((run.policy, reference.policy), (run.critic, reference.critic)):
        assert set(mine) == set(wanted)
        for weight in wanted:
            torch.testing.assert_close(mine[weight], wanted[weight], rtol=1e-10, atol=1e-12, msg=weight)


def test_the_reference_run_really_trains(algorithm, reference, tmp_path):
    frozen = train(tmp_path, *algorithm, "actor_rollout_ref.actor.optim.lr=0", "critic.optim.lr=0")

    assert any(not torch.equal(reference.policy[name], frozen.policy[name]) for name in frozen.policy)
    assert all(step["actor/grad_norm"] > 0 for step in reference.metrics)
    assert all(step["training/logprob_gap/max"] < 1e-6 for step in reference.metrics)
    assert reference.metrics[1]["rollout/weight_version"] == reference.metrics[0]["actor/optimizer_steps"]


def test_the_ratio_is_exactly_one_on_the_first_mini_batch(tmp_path, installed_fakes):
    run = train(tmp_path, "actor_rollout_ref.actor.ppo_mini_batch_size=4", "algorithm.adv_estimator=grpo")
    assert [step["actor/ppo_kl"] for step in run.metrics] == [0.0, 0.0]


@pytest.mark.parametrize("estimator", ["gae", "grpo"])
@pytest.mark.parametrize("backend", ["fake", "fake-pipeline"])
def test_an_engine_without_log_probs_trains_alike_on_any_number_of_workers(
    estimator, backend, tmp_path, installed_fakes
):
    echo = ["actor_rollout_ref.rollout.name=echo", f"algorithm.adv_estimator={estimator}"]
    backend = f"actor_rollout_ref.actor.strategy={backend}"
    reference = train(tmp_path / "one", *echo)
    assert "training/logprob_gap/mean" not in reference.metrics[0]
    for workers in (1, 2, 4):
        run = train(tmp_path / str(workers), *echo, backend, f"trainer.n_gpus_per_node={workers}")
        for name, weight in reference.policy.items():
            torch.testing.assert_close(run.policy[name], weight, rtol=1e-10, atol=1e-12, msg=name)


def test_fewer_rows_than_workers_and_groups_that_lost_a_member(tmp_path, installed_fakes):
    odd = ["data.train_batch_size=3", "actor_rollout_ref.actor.ppo_mini_batch_size=3", "algorithm.adv_estimator=grpo"]
    # Prompts of four letters and more leave the engine no room for a response: those rollouts fail.
    few = ["trainer.max_failed_rollout_fraction=0.9", "actor_rollout_ref.rollout.max_model_len=4"]
    validation = [f"data.val_files={tmp_path}/one/train.jsonl", "data.val_max_samples=1"]
    one = train(tmp_path / "one", *odd, *few, *validation)
    four = train(tmp_path / "four", *odd, *few, *validation, "trainer.n_gpus_per_node=4")

    assert sum(step.get("rollout/failed", 0) for step in one.metrics) > 0
    for name, weight in one.policy.items():
        torch.testing.assert_close(four.policy[name], weight, rtol=1e-10, atol=1e-12, msg=name)
    core = "val-core/count_letter/reward/mean@1"
    assert four.metrics[0][core] == one.metrics[0][core]


def test_a_reward_model_scores_instead_of_a_rule(tmp_path, installed_fakes):
    rewarded = ["algorithm.adv_estimator=grpo", "reward_model.enable=true", "reward_model.model.path=tiny"]
    one = train(tmp_path / "one", *rewarded)
    two = train(tmp_path / "two", *rewarded, "trainer.n_gpus_per_node=2", "reward_model.micro_batch_size_per_gpu=1")
    assert one.metrics[0]["critic/score/mean"] == two.metrics[0]["critic/score/mean"]
    assert one.metrics[0]["reward/missing"] == 0


def test_roles_with_workers_of_their_own_are_refused_by_the_local_runtime(tmp_path, installed_fakes):
    with pytest.raises(ConfigError, match=r"critic \(1 workers\) asked for workers of their own"):
        train(tmp_path, "critic.enable_resource_pool=true", "critic.nnodes=1", "critic.n_gpus_per_node=1")


def test_resume_goes_on_exactly(tmp_path, algorithm, installed_fakes):
    long = ["trainer.total_training_steps=6", "trainer.total_epochs=2", "trainer.resume_mode=auto", *algorithm]
    straight = train(tmp_path / "straight", *long)
    train(tmp_path / "stopped", *long, "trainer.save_freq=3", "trainer.total_training_steps=3")
    resumed = train(tmp_path / "stopped", *long, "trainer.save_freq=3")

    untimed = lambda step: {k: v for k, v in step.items() if not k.startswith(("timing_s/", "perf/", "memory/"))}  # noqa: E731
    assert [step["step"] for step in resumed.metrics] == [1, 2, 3, 4, 5, 6]
    steps = [untimed(step) | {"training/total_steps": 6} for step in resumed.metrics]
    assert steps == [untimed(step) for step in straight.metrics]
    for mine, wanted in ((resumed.policy, straight.policy), (resumed.critic, straight.critic)):
        assert all(torch.equal(mine[name], wanted[name]) for name in wanted)
