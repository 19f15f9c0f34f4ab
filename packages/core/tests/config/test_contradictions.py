from __future__ import annotations

import pytest
from rl_core.config.contradictions import contradictions

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
QUIET = "actor_rollout_ref.model.path=/m"


def found(composed, *overrides):
    return [f"{severity}: {text}" for severity, text in contradictions(composed(QUIET, *overrides))]


def test_defaults_contradict_nothing(composed):
    assert found(composed) == []


def test_kl_in_both_places_is_refused_unless_allowed(composed):
    both = ["algorithm.use_kl_in_reward=true", f"{ACTOR}.use_kl_loss=true"]
    (error,) = found(composed, *both)
    assert error.startswith("error: algorithm.use_kl_in_reward and actor_rollout_ref.actor.use_kl_loss")
    (warning,) = found(composed, *both, "algorithm.allow_kl_in_both=true")
    assert warning.startswith("warning:")
    assert "in the reward and in the loss" in warning


@pytest.mark.parametrize("key", [f"{ACTOR}.kl_loss_coef", "algorithm.kl_ctrl.kl_coef"])
def test_a_kl_coefficient_alone_warns_even_at_its_default(key, composed):
    (warning,) = found(composed, f"{key}=0.001")
    assert warning.startswith(f"warning: {key} is given, but no KL term is on")


@pytest.mark.parametrize("switch", ["algorithm.use_kl_in_reward=true", f"{ACTOR}.use_kl_loss=true"])
def test_one_kl_term_is_fine(switch, composed):
    assert found(composed, switch, f"{ACTOR}.kl_loss_coef=0.01") == []


@pytest.mark.parametrize(
    ("overrides", "severity", "text"),
    [
        (["critic.enable=false"], "error", "'gae' works on values"),
        (["algorithm.adv_estimator=grpo", f"{ROLLOUT}.n=4", "critic.enable=true"], "warning", "trained for nothing"),
        (
            ["algorithm.adv_estimator=grpo", f"{ROLLOUT}.n=4", "trainer.critic_warmup=5"],
            "error",
            "nothing would be trained",
        ),
        (["algorithm.adv_estimator=grpo"], "warning", "rollout.n is 1"),
        ([f"{ROLLOUT}.temperature=0", f"{ROLLOUT}.n=4"], "warning", "all 4 responses to a prompt are the same"),
        ([f"{ROLLOUT}.top_p=0.9"], "warning", "not drawn from the policy itself"),
        ([f"{ACTOR}.use_rollout_log_probs=true", f"{ROLLOUT}.calculate_log_probs=false"], "error", "Turn it on"),
        ([f"{ROLLOUT}.val_kwargs.n=4"], "warning", "validation responses are the same"),
        ([f"{ROLLOUT}.val_kwargs.do_sample=true"], "error", "Set the temperature"),
        ([f"{ROLLOUT}.val_kwargs.do_sample=false", f"{ROLLOUT}.val_kwargs.temperature=1"], "warning", "greedy"),
        ([f"{ROLLOUT}.max_model_len=1000"], "error", "longest prompt (512) plus the longest response (512) = 1024"),
        ([f"{ACTOR}.ppo_max_token_len_per_gpu=1000"], "warning", "longest sequence has 1024"),
        (
            [f"{ACTOR}.ulysses_sequence_parallel_size=2", "actor_rollout_ref.model.use_remove_padding=false"],
            "error",
            "needs packed sequences",
        ),
        (["reward_model.enable=true"], "error", "reward_model.model.path is not set"),
        (["trainer.use_v1=false"], "error", "one trainer only"),
        (["actor_rollout_ref.hybrid_engine=false"], "error", "rollout.nnodes"),
        (["trainer.resume_mode=resume_path"], "error", "resume_from_path is not set"),
        ([f"{ROLLOUT}.nnodes=1"], "warning", "the schedule is synchronous"),
        (["critic.enable_resource_pool=true"], "error", "pool of its own with 0 workers"),
    ],
)
def test_each_contradiction(overrides, severity, text, composed):
    (only,) = found(composed, *overrides)
    assert only.startswith(f"{severity}: ")
    assert text in only


def test_without_a_model_engines_that_load_one_refuse(composed):
    ((severity, text),) = contradictions(composed())
    assert severity == "warning"
    assert "actor_rollout_ref.model.path is not set" in text
