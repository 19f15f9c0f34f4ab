import pytest
from rl_core.config.contradictions import contradictions

ROLLOUT = "actor_rollout_ref.rollout"


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ([f"{ROLLOUT}.top_p=0.95"], "up to -log(top_p) = 0.051 nats."),
        (
            [f"{ROLLOUT}.top_p=0.5"],
            "first_sync_tolerance (0.1) can stop the run at its first step for that; raise it above 0.69",
        ),
        ([f"{ROLLOUT}.top_k=20"], "by minus the log of the probability that is kept"),
        ([f"{ROLLOUT}.logprobs_mode=raw_logprobs", f"{ROLLOUT}.temperature=0.7"], "Take processed_logprobs"),
        ([f"{ROLLOUT}.min_tokens=4"], "of the first 4 tokens of a response are inexact"),
        (["trainer.parity.max_logprob_gap=0.1", f"{ROLLOUT}.calculate_log_probs=false"], "no gap to hold to it"),
    ],
)
def test_what_makes_the_comparison_inexact_is_said_once(overrides, text, composed):
    config = composed("actor_rollout_ref.model.path=m", *overrides)
    (only,) = [message for severity, message in contradictions(config) if severity == "warning" and text in message]
    assert only


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        [f"{ROLLOUT}.temperature=0.7"],
        [f"{ROLLOUT}.logprobs_mode=raw_logprobs"],
        [f"{ROLLOUT}.min_tokens=4", f"{ROLLOUT}.ignore_eos=true"],
        [f"{ROLLOUT}.calculate_log_probs=false"],
    ],
)
def test_nothing_is_said_of_what_is_exact(overrides, composed):
    config = composed("actor_rollout_ref.model.path=m", *overrides)
    assert not [message for _, message in contradictions(config) if "parity" in message]
