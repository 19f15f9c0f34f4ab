"""The fakes on Ray: the same numbers as in one process, on shared and on separate workers."""

import time

import pytest
import torch
from fakes_training import train
from rl_core.errors import ConfigError
from rl_core.trainer import placement
from rl_core.workers import reward_model
from same_run import assert_same_run
from slow_stages import SlowCritic, SlowReference, SlowRewardModel, spans

pytestmark = pytest.mark.heavy

RAY = "trainer.runtime=ray"
PPO = ["algorithm.adv_estimator=gae", "algorithm.use_kl_in_reward=true"]
APART = {
    "critic": ["critic.enable_resource_pool=true", "critic.nnodes=1", "critic.n_gpus_per_node=1"],
    "ref": [
        "actor_rollout_ref.ref.enable_resource_pool=true",
        "actor_rollout_ref.ref.nnodes=1",
        "actor_rollout_ref.ref.n_gpus_per_node=1",
    ],
    "reward_model": [
        "reward_model.enable_resource_pool=true",
        "reward_model.nnodes=1",
        "reward_model.n_gpus_per_node=1",
    ],
}
STRATEGIES = {
    "dynamic sampling": [
        "algorithm.adv_estimator=grpo",
        "algorithm.filter_groups.enable=true",
        "data.gen_batch_size=3",
    ],
    "greedy pass": ["algorithm.adv_estimator=remax"],
}
REWARD_MODEL = ["reward_model.enable=true", "reward_model.model.path=tiny"]


@pytest.fixture(scope="module")
def ray_here(installed_fakes):
    """One cluster of this process for the runs of this module."""
    import ray

    ray.init(address="local", num_cpus=16, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def ppo(tmp_path_factory, installed_fakes):
    return train(tmp_path_factory.mktemp("ppo"), *PPO)


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 4]
)
def test_ppo_takes_the_same_steps_on_any_number_of_processes(workers, ppo, tmp_path, ray_here):
    assert_same_run(train(tmp_path, *PPO, RAY, f"trainer.n_gpus_per_node={workers}"), ppo)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_of_the_sampler_take_the_same_steps(strategy, tmp_path, ray_here):
    long = [*STRATEGIES[strategy], "data.max_response_length=20", "trainer.total_epochs=4"]
    one = train(tmp_path / "one", *long)
    assert_same_run(train(tmp_path / "ray", *long, RAY, "trainer.n_gpus_per_node=2"), one)
    assert len(one.metrics) == 2


def test_roles_on_workers_of_their_own_compute_the_same(tmp_path, ray_here):
    one = train(tmp_path / "one", *PPO, *REWARD_MODEL)
    apart = [item for items in APART.values() for item in items]
    assert_same_run(train(tmp_path / "apart", *PPO, *REWARD_MODEL, *apart, RAY), one)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["critic", "ref"])
def test_a_role_on_more_workers_than_the_actor_computes_the_same(role, ppo, tmp_path, ray_here):
    *section, count = APART[role]
    assert_same_run(train(tmp_path, *PPO, *section, count.replace("=1", "=2"), RAY), ppo)


@pytest.mark.slow
def test_resume_goes_on_exactly(tmp_path, ray_here):
    long = [RAY, "trainer.n_gpus_per_node=2", "trainer.total_training_steps=4", "trainer.resume_mode=auto", *PPO]
    straight = train(tmp_path / "straight", *long)
    train(tmp_path / "stopped", *long, "trainer.save_freq=2", "trainer.total_training_steps=2")
    resumed = train(tmp_path / "stopped", *long, "trainer.save_freq=2")
    assert [step["step"] for step in resumed.metrics] == [1, 2, 3, 4]
    assert all(torch.equal(resumed.policy[name], straight.policy[name]) for name in straight.policy)
    assert all(torch.equal(resumed.critic[name], straight.critic[name]) for name in straight.critic)


def test_a_cluster_that_is_too_small_ends_the_run_at_once_with_a_table(tmp_path, ray_here):
    started = time.monotonic()
    with pytest.raises(
        ConfigError, match=r"(?s)the cluster is too small.*global_pool +2 \+ 2.*It has 1 of the 2 nodes"
    ):
        train(tmp_path, RAY, "trainer.nnodes=2", "trainer.n_gpus_per_node=2")
    assert time.monotonic() - started < 30.0


def test_reference_values_and_reward_model_run_at_once_when_they_sit_apart(tmp_path, ray_here, monkeypatch):
    monkeypatch.setattr(placement, "ReferenceWorker", SlowReference)
    monkeypatch.setattr(placement, "CriticWorker", SlowCritic)
    monkeypatch.setattr(reward_model, "RewardModelWorker", SlowRewardModel)
    apart = [item for items in APART.values() for item in items]
    train(tmp_path, *PPO, *REWARD_MODEL, *apart, RAY)

    found = spans(tmp_path / "run")
    assert sorted(found) == ["ref", "reward", "values"]
    for step in zip(*found.values(), strict=True):
        assert max(start for start, _ in step) < min(end for _, end in step)
    assert len(found["ref"]) == 2
