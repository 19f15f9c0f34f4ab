"""PPO and GRPO learn on a real model with real engines (Labs 1, 2 and 6 of the walkthrough, on a CPU)."""

import pytest
from tiny_runs import train

pytestmark = pytest.mark.heavy
LABS = {
    "ppo": ["algorithm.adv_estimator=gae", "actor_rollout_ref.actor.ppo_epochs=2"],
    "grpo": [
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.actor.kl_loss_coef=0.001",
        "actor_rollout_ref.actor.kl_loss_type=low_var_kl",
    ],
}


@pytest.mark.parametrize("lab", LABS)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_the_reward_rises_and_generator_and_trainer_agree(lab, seed, model, tmp_path):
    metrics = train(model, tmp_path, *LABS[lab], f"trainer.seed={seed}")

    rewards = [step["critic/score/mean"] for step in metrics]
    fifth = len(rewards) // 5
    assert sum(rewards[-fifth:]) / fifth > sum(rewards[:fifth]) / fifth + 0.2
    assert max(step["training/logprob_gap/max"] for step in metrics) < 1e-4
    assert all(step["rollout/failed"] == step["reward/missing"] == 0 for step in metrics)
    assert ("critic/vf_loss" in metrics[0]) == (lab == "ppo")
    assert ("actor/kl_loss" in metrics[0]) == (lab == "grpo")
    assert metrics[0]["reward_extra/length/mean"] > 0


def test_the_ratio_is_exactly_one_before_the_first_step(model, tmp_path):
    metrics = train(model, tmp_path, "trainer.total_training_steps=2")
    assert [step["actor/ppo_kl"] for step in metrics] == [0.0, 0.0]
    assert [step["actor/pg_clipfrac"] for step in metrics] == [0.0, 0.0]


def test_without_a_learning_rate_nothing_is_learned(model, tmp_path):
    metrics = train(model, tmp_path, "actor_rollout_ref.actor.optim.lr=0", "trainer.total_training_steps=6")
    rewards = [step["critic/score/mean"] for step in metrics]
    assert max(rewards) - min(rewards) < 0.2
