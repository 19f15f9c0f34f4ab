"""``recipe=dapo`` and ``recipe=prime`` train on the fakes: the same however the work is cut, exactly after a resume."""

import pytest
import torch
from fakes_training import train
from rl_core.errors import DataError, WorkerError
from rl_core.plugins import reset_registry

pytestmark = pytest.mark.heavy

SMALL = ["actor_rollout_ref.rollout.n=4", "actor_rollout_ref.actor.optim.lr=0.5", "trainer.total_epochs=20"]
PRIME = [
    "recipe=prime",
    *SMALL,
    "reward_model.optim.optimizer=SGD",
    "reward_model.optim.lr=1.0",
    "reward_model.prime.beta=0.5",
]
DAPO = [
    "recipe=dapo",
    *SMALL,
    "reward_model.reward_kwargs.overlong_buffer_cfg.len=3",
    "reward_model.reward_kwargs.overlong_buffer_cfg.penalty_factor=0.1",
]
COMPARED = ("actor/", "reward_model/", "reward_extra/", "reward/", "training/filter_groups/")
PRIME_LAYOUTS = {
    "two workers": ["trainer.n_gpus_per_node=2"],
    "four workers, pipeline": ["trainer.n_gpus_per_node=4", "actor_rollout_ref.actor.strategy=fake-pipeline"],
    "one response a pass": ["reward_model.micro_batch_size_per_gpu=1"],
    "offloaded": [
        "trainer.n_gpus_per_node=2",
        "reward_model.fake_config.param_offload=true",
        "reward_model.fake_config.optimizer_offload=true",
    ],
}


@pytest.fixture(scope="module", autouse=True)
def installed():
    """Core, the fakes and the recipes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_PLUGINS", "rl-testing,rl-recipes")
        reset_registry()
        yield
    reset_registry()


@pytest.fixture(scope="module")
def prime(tmp_path_factory):
    return train(tmp_path_factory.mktemp("prime"), *PRIME)


def assert_same(run, reference):
    assert len(run.metrics) == len(reference.metrics)
    for ours, theirs in zip(run.metrics, reference.metrics, strict=True):
        compared = [key for key in theirs if key.startswith(COMPARED)]
        assert len(compared) > 10
        for key in compared:
            assert ours[key] == pytest.approx(theirs[key], rel=1e-9, abs=1e-11), key
    for name, weight in reference.policy.items():
        torch.testing.assert_close(run.policy[name], weight, rtol=1e-9, atol=1e-11, msg=name)


def test_prime_trains_both_models(prime):
    first, second = prime.metrics
    assert first["reward_model/optimizer_steps"] == 2
    assert all(step["reward_model/grad_norm"] > 0 and step["actor/grad_norm"] > 0 for step in prime.metrics)
    assert first["reward_model/loss"] == pytest.approx(0.69, abs=0.1)
    assert first["training/filter_groups/kept"] == 4
    assert {"timing_s/update_reward_model", "memory/reward_model/update_reward_model_gib"} <= set(second)


@pytest.mark.parametrize("layout", PRIME_LAYOUTS)
def test_prime_is_the_same_however_the_work_is_cut(layout, prime, tmp_path):
    assert_same(train(tmp_path, *PRIME, *PRIME_LAYOUTS[layout]), prime)


def test_rewards_of_the_updated_model_are_others(prime, tmp_path):
    before = train(tmp_path, *PRIME, "reward_model.update=before")
    # The same update; the policy is credited by the model after it instead of by the one before.
    assert before.metrics[0]["reward_model/loss"] == pytest.approx(prime.metrics[0]["reward_model/loss"])
    assert any(not torch.equal(before.policy[name], prime.policy[name]) for name in prime.policy)


def test_a_frozen_process_model_gives_scores_and_is_not_saved(tmp_path):
    run = train(tmp_path, *PRIME, "reward_model.update=none", "trainer.save_freq=1")
    assert not any(key.startswith("reward_model/") for step in run.metrics for key in step)
    assert not (tmp_path / "run" / "global_step_2" / "reward_model").exists()


def test_prime_resumes_exactly(tmp_path):
    long = [*PRIME, "trainer.total_training_steps=4", "trainer.resume_mode=auto", "reward_model.optim.optimizer=AdamW"]
    straight = train(tmp_path / "straight", *long)
    train(tmp_path / "stopped", *long, "trainer.save_freq=2", "trainer.total_training_steps=2")
    assert (tmp_path / "stopped" / "run" / "global_step_2" / "reward_model").is_dir()
    resumed = train(tmp_path / "stopped", *long, "trainer.save_freq=2")

    assert [step["step"] for step in resumed.metrics] == [1, 2, 3, 4]
    for ours, theirs in zip(resumed.metrics, straight.metrics, strict=True):
        assert {key: ours[key] for key in theirs if key.startswith(COMPARED)} == {
            key: value for key, value in theirs.items() if key.startswith(COMPARED)
        }
    assert all(torch.equal(resumed.policy[name], straight.policy[name]) for name in straight.policy)


def test_prime_on_ray_with_workers_of_its_own(prime, tmp_path):
    import ray

    own = [
        "trainer.runtime=ray",
        "trainer.n_gpus_per_node=2",
        "reward_model.enable_resource_pool=true",
        "reward_model.nnodes=1",
        "reward_model.n_gpus_per_node=1",
    ]
    ray.init(address="local", num_cpus=8, include_dashboard=False, log_to_driver=False)
    try:
        assert_same(train(tmp_path, *PRIME, *own), prime)
    finally:
        ray.shutdown()


def test_prime_refuses_rewards_that_are_no_outcomes(tmp_path):
    reward = tmp_path / "reward.py"
    reward.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return 5.0 * solution_str.count('a') - 1.0\n"
    )
    with pytest.raises((DataError, WorkerError), match="PRIME trains its reward model to tell right"):
        train(tmp_path, *PRIME, f"custom_reward_function.path={reward}")


def test_dapo_punishes_length_and_samples_by_accuracy(tmp_path):
    run = train(tmp_path / "one", *DAPO)
    for step in run.metrics:
        assert -0.1 <= step["reward_extra/overlong_reward/mean"] < 0
        assert 0 < step["reward_extra/overlong/mean"] <= 1
        assert step["reward/count_letter/mean"] == pytest.approx(
            step["reward_extra/acc/mean"] + step["reward_extra/overlong_reward/mean"]
        )
        assert step["training/filter_groups/kept"] == 4
        assert step["actor/grad_norm"] > 0
    assert_same(train(tmp_path / "two", *DAPO, "trainer.n_gpus_per_node=2"), run)


def test_dapo_does_not_train_on_what_was_cut_off(tmp_path):
    run = train(tmp_path, *DAPO, "reward_model.reward_kwargs.overlong_filter=true")
    plain = train(tmp_path / "plain", *DAPO)
    assert all(0 < step["reward/untrained"] <= 16 for step in run.metrics)
    # The same responses in the first step, of which fewer train.
    assert run.metrics[0]["reward/count_letter/mean"] == plain.metrics[0]["reward/count_letter/mean"]
    assert run.metrics[0]["actor/grad_norm"] != plain.metrics[0]["actor/grad_norm"]


def test_bad_keys_of_the_penalty_end_the_run_before_a_worker_starts(tmp_path):
    from rl_core.errors import ConfigError

    with pytest.raises(ConfigError, match="len is 7, which is longer than the longest response, 6 tokens"):
        train(tmp_path, *DAPO, "reward_model.reward_kwargs.overlong_buffer_cfg.len=7")
