"""Whole runs: on Ray with two workers, with a critic, with either generator."""

from __future__ import annotations

import pytest
from rl_testing.models import save_tiny_model
from tiny_runs import train

pytestmark = pytest.mark.heavy

OWN = (
    "trainer.device=cpu",
    "actor_rollout_ref.actor.strategy=deepspeed",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    # Steps of SGD are the gradients themselves; Adam's would turn a rounding of a tiny gradient into a whole step.
    "actor_rollout_ref.actor.optim.optimizer=SGD",
    "actor_rollout_ref.actor.optim.lr=0.1",
    "critic.optim.optimizer=SGD",
    "critic.optim.lr=0.1",
)
RAY = ("trainer.runtime=ray", "trainer.n_gpus_per_node=2")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with weights and a tokenizer; heads of 32."""
    return save_tiny_model(tmp_path_factory.mktemp("model") / "tiny", hidden_size=128, seed=3)


def steps_of(model, folder, num_steps, *more):
    return train(model, folder, *OWN, f"trainer.total_training_steps={num_steps}", *more)


def assert_same_training(found, expected):
    assert len(found) == len(expected)
    for here, there in zip(found, expected, strict=True):
        for name in ("actor/grad_norm", "actor/pg_loss", "response_length/mean", "critic/score/mean"):
            assert here[name] == pytest.approx(there[name], rel=1e-3, abs=1e-5), name


def test_grpo_on_ray_takes_the_steps_of_one_fsdp2_worker(model, tmp_path):
    kl = ("actor_rollout_ref.actor.use_kl_loss=True", "actor_rollout_ref.ref.strategy=deepspeed")
    stage = "deepspeed_config.zero_stage=3"
    sections = (f"actor_rollout_ref.actor.{stage}", f"actor_rollout_ref.ref.{stage}")
    found = steps_of(model, tmp_path / "ray", 2, *RAY, *kl, *sections)
    expected = steps_of(
        model,
        tmp_path / "fsdp",
        2,
        "actor_rollout_ref.actor.strategy=fsdp",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.ref.strategy=fsdp",
    )
    assert_same_training(found, expected)


def test_ppo_with_a_critic_on_ray_that_leaves_the_device_between_phases(model, tmp_path):
    offload = (
        "actor_rollout_ref.actor.deepspeed_config.param_offload=True",
        "actor_rollout_ref.actor.deepspeed_config.optimizer_offload=True",
        "critic.deepspeed_config.param_offload=True",
        "critic.deepspeed_config.optimizer_offload=True",
        "critic.deepspeed_config.zero_stage=3",
    )
    ppo = ("algorithm.adv_estimator=gae", "critic.strategy=deepspeed")
    steps = steps_of(model, tmp_path / "ray", 2, *RAY, *ppo, *offload)
    alone = steps_of(model, tmp_path / "one", 2, *ppo)
    assert_same_training(steps, alone)
    for here, there in zip(steps, alone, strict=True):
        assert here["critic/grad_norm"] == pytest.approx(there["critic/grad_norm"], rel=1e-3)


def test_a_run_goes_on_from_its_checkpoint_bit_for_bit(model, tmp_path):
    straight = steps_of(model, tmp_path / "straight", 3)
    steps_of(model, tmp_path / "cut", 2, "trainer.save_freq=2")
    resumed = steps_of(model, tmp_path / "cut", 3, "trainer.save_freq=2")
    assert resumed[-1]["actor/grad_norm"] == straight[-1]["actor/grad_norm"]


@pytest.mark.parametrize("stage", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_grpo_with_vllm_is_sampled_from_the_weights_of_the_step(model, tmp_path, stage):
    steps = steps_of(
        model,
        tmp_path,
        3,
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.vllm.cache_gib=0.25",
        f"actor_rollout_ref.actor.deepspeed_config.zero_stage={stage}",
    )
    assert [step["rollout/weight_version"] for step in steps] == [0, 2, 4]  # two optimizer steps each
    assert all(step["training/logprob_gap/mean"] < 1e-4 for step in steps)
    assert all(step["rollout/failed"] == 0 for step in steps)
