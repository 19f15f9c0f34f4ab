from __future__ import annotations

import pytest
from rl_core.config.contradictions import contradictions
from rl_core.config.roles import roles

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
QUIET = "actor_rollout_ref.model.path=/m"


def found(composed, *overrides):
    return [f"{severity}: {text}" for severity, text in contradictions(composed(QUIET, *overrides))]


def test_defaults_contradict_nothing(composed):
    assert found(composed) == []


def test_b27_kl_in_both_places_is_refused_unless_allowed(composed):
    both = ["algorithm.use_kl_in_reward=true", f"{ACTOR}.use_kl_loss=true"]
    (error,) = found(composed, *both)
    assert error.startswith("error: algorithm.use_kl_in_reward and actor_rollout_ref.actor.use_kl_loss")
    (warning,) = found(composed, *both, "algorithm.allow_kl_in_both=true")
    assert warning.startswith("warning:")
    assert "in the reward and in the loss" in warning


@pytest.mark.parametrize("key", [f"{ACTOR}.kl_loss_coef", "algorithm.kl_ctrl.kl_coef"])
def test_b27_a_kl_coefficient_alone_warns_even_at_its_default(key, composed):
    (warning,) = found(composed, f"{key}=0.001")
    assert warning.startswith(f"warning: {key} is given, but no KL term is on")


@pytest.mark.parametrize(
    "overrides",
    [
        ["policy_loss.loss_mode=dro", "policy_loss.dro_beta=0.1"],
        ["policy_loss.loss_mode=geo_mean", "loss_agg_mode=seq-mean-token-mean"],
        ["policy_loss.loss_mode=cispo"],
    ],
)
def test_policy_losses_with_what_they_need(overrides, composed):
    assert found(composed, *[f"{ACTOR}.{item}" for item in overrides]) == []


@pytest.mark.parametrize("switch", ["algorithm.use_kl_in_reward=true", f"{ACTOR}.use_kl_loss=true"])
def test_b27_one_kl_term_is_fine_and_brings_the_reference(switch, composed):
    assert found(composed, switch, f"{ACTOR}.kl_loss_coef=0.01") == []
    assert "ref" in roles(composed(switch).tree)


def test_b27_without_a_kl_term_no_reference_is_loaded(composed):
    assert "ref" not in roles(composed(f"{ACTOR}.kl_loss_coef=0.01").tree)


@pytest.mark.parametrize(
    ("overrides", "severity", "text"),
    [
        (["critic.enable=false"], "error", "'gae' works on values"),
        (
            ["algorithm.adv_estimator=squares", f"{ACTOR}.calculate_sum_pi_squared=false"],
            "error",
            "'squares' needs the sums of squared probabilities",
        ),
        (["algorithm.adv_estimator=grpo", f"{ROLLOUT}.n=4", "critic.enable=true"], "warning", "trained for nothing"),
        (
            ["algorithm.adv_estimator=grpo", f"{ROLLOUT}.n=4", "trainer.critic_warmup=5"],
            "error",
            "nothing would be trained",
        ),
        (["algorithm.adv_estimator=grpo"], "warning", "rollout.n is 1"),
        (["algorithm.filter_groups.enable=true"], "error", "rollout.n is 1: the rewards of one response cannot differ"),
        (
            [
                "algorithm.filter_groups.enable=true",
                "algorithm.filter_groups.metric=seq_final_reward",
                "algorithm.use_kl_in_reward=true",
                f"{ROLLOUT}.n=4",
            ],
            "warning",
            "judged by the score, before algorithm.use_kl_in_reward",
        ),
        (
            ["algorithm.adv_estimator=remax", f"{ROLLOUT}.greedy_baseline=false"],
            "error",
            "'remax' works on the reward of a greedy response",
        ),
        ([f"{ACTOR}.policy_loss.loss_mode=dro"], "error", "policy_loss.dro_beta, the weight"),
        (
            [f"{ACTOR}.policy_loss.loss_mode=clip_cov", f"{ACTOR}.policy_loss.clip_cov_lb=6"],
            "error",
            "clip_cov_lb (6) is not below clip_cov_ub (5)",
        ),
        (
            [f"{ACTOR}.policy_loss.loss_mode=gspo"],
            "warning",
            f"'gspo' is its method's only with {ACTOR}.loss_agg_mode=seq-mean-token-mean; it is token-mean.",
        ),
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
