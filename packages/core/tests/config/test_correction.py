from __future__ import annotations

import pytest
from rl_core.config.contradictions import contradictions
from rl_core.config.correction import (
    Bounds,
    Rule,
    old_log_prob_switch,
    parse_correction,
    rejection_rules,
    weight_bounds,
)
from rl_core.config.inert_choice import inert_choices
from rl_core.errors import ConfigError

KEY = "algorithm.rollout_correction"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model.path=/m"
BYPASS = f"{KEY}.bypass_mode=true"


def found(composed, *overrides):
    return [f"{severity}: {text}" for severity, text in contradictions(composed(MODEL, *overrides))]


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(2.0, Bounds(None, 2.0)), (3, Bounds(None, 3.0)), ("2", Bounds(None, 2.0)), ("0.5_5.0", Bounds(0.5, 5.0))],
)
def test_bounds_of_weights(threshold, expected):
    assert weight_bounds(threshold) == expected


@pytest.mark.parametrize("threshold", [True, None, "", "high", "1_2_3", 0, -1.0, float("inf"), "0_2", [2.0]])
def test_bounds_that_are_no_numbers(threshold):
    with pytest.raises(ConfigError, match=r"rollout_is_threshold takes a number above 0, or two as lower_upper"):
        weight_bounds(threshold)


@pytest.mark.parametrize("threshold", [0.52, "1.5_2.0", "0.2_0.5", "2.0_0.5"])
def test_one_lies_between_the_bounds(threshold):
    with pytest.raises(ConfigError, match=r"1 must lie within; .*0\.5_2 reads as the number 0\.52"):
        weight_bounds(threshold)


@pytest.mark.parametrize(
    ("names", "thresholds", "expected"),
    [
        (None, None, ()),
        ("token_k1", 4.0, (Rule("token", "k1", 0.25, 4.0),)),
        ("seq_mean_k1", "0.5_3.0", (Rule("seq_mean", "k1", 0.5, 3.0),)),
        ("seq_max_k2, token_k3", 0.1, (Rule("seq_max", "k2", None, 0.1), Rule("token", "k3", None, 0.1))),
        (
            "seq_sum_k1,seq_mean_k3",
            "0.5_2.0,0.01",
            (Rule("seq_sum", "k1", 0.5, 2.0), Rule("seq_mean", "k3", None, 0.01)),
        ),
        (
            "seq_sum_k1,seq_mean_k3",
            ["0.5_2.0", 0.01],
            (Rule("seq_sum", "k1", 0.5, 2.0), Rule("seq_mean", "k3", None, 0.01)),
        ),
    ],
)
def test_rules(names, thresholds, expected):
    assert rejection_rules(names, thresholds) == expected


@pytest.mark.parametrize(
    ("names", "thresholds", "text"),
    [
        ("seq_max_k1", 2.0, "unknown: seq_max_k1"),
        ("", 2.0, "takes rules"),
        ("token_k1,token_k1", 2.0, "each once"),
        ("token_k1", None, "rollout_rs_threshold is null"),
        ("token_k1,token_k2", [1.0, 2.0, 3.0], "need one bound for all or 2 bounds"),
        ("token_k3", "0.5_2.0", "one number"),
        ("token_k1", 0.52, "1 must lie within"),
        ("token_k2", -1, "above 0"),
    ],
)
def test_rules_that_cannot_be(names, thresholds, text):
    with pytest.raises(ConfigError, match=text):
        rejection_rules(names, thresholds)


def test_the_section(composed):
    keys = [f"{KEY}.rollout_is=sequence", f"{KEY}.rollout_is_batch_normalize=true", f"{KEY}.rollout_rs=seq_sum_k1"]
    parsed = parse_correction(composed(*keys, f"{KEY}.rollout_rs_threshold=0.5_2.0").tree.algorithm.rollout_correction)
    assert (parsed.level, parsed.bounds, parsed.should_normalize) == ("sequence", Bounds(None, 2.0), True)
    assert parsed.rules == (Rule("seq_sum", "k1", 0.5, 2.0),)
    nothing = parse_correction(composed(keys[1]).tree.algorithm.rollout_correction)
    assert (nothing.level, nothing.should_normalize, nothing.rules) == (None, False, ())


GROUPS = ["algorithm.adv_estimator=grpo", f"{ROLLOUT}.n=4"]
REJECT = [f"{KEY}.rollout_rs=token_k1", f"{KEY}.rollout_rs_threshold=2.0"]


@pytest.mark.parametrize(
    ("overrides", "severity", "text"),
    [
        ([f"{KEY}.rollout_rs=token_k4", f"{KEY}.rollout_rs_threshold=2.0"], "error", "unknown: token_k4"),
        ([f"{KEY}.rollout_is=token", f"{KEY}.rollout_is_threshold=0.5_2"], "error", "found 0.52"),
        ([f"{ACTOR}.use_rollout_log_probs=true", f"{KEY}.rollout_is=token"], "error", "with themselves"),
        ([BYPASS, f"{KEY}.rollout_is_batch_normalize=true"], "error", "the whole batch"),
        ([f"{KEY}.rollout_is=token", f"{ROLLOUT}.calculate_log_probs=false"], "error", "Turn it on"),
        ([BYPASS, *GROUPS, *REJECT], "warning", "has counted in its group's baseline"),
        ([BYPASS, "trainer.parity.max_logprob_gap=0.1"], "warning", "at the run's first step only"),
    ],
)
def test_contradictions(overrides, severity, text, composed):
    (finding,) = found(composed, *overrides)
    assert finding.startswith(severity)
    assert text in finding


def test_a_cut_off_distribution_warns_twice_with_a_correction(composed):
    assert [line.partition(":")[0] for line in found(composed, f"{ROLLOUT}.top_p=0.9", f"{KEY}.rollout_is=token")] == [
        "warning",
        "warning",
    ]
    assert len(found(composed, f"{ROLLOUT}.top_p=0.9")) == 1


@pytest.mark.parametrize("overrides", [[*GROUPS, *REJECT], [BYPASS], [BYPASS, f"{KEY}.loss_type=reinforce"]])
def test_what_is_fine(overrides, composed):
    assert found(composed, *overrides) == []


def test_which_key_leaves_rescoring_out(composed):
    keep = f"{ACTOR}.use_rollout_log_probs"
    assert old_log_prob_switch(composed().tree) is None
    assert old_log_prob_switch(composed(f"{keep}=true").tree) == keep
    assert old_log_prob_switch(composed(f"{keep}=true", BYPASS).tree) == f"{KEY}.bypass_mode"


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            [BYPASS, f"{KEY}.rollout_is=token"],
            f"{KEY}.rollout_is has no effect: with bypass_mode and loss_type ppo_clip",
        ),
        ([BYPASS, f"{ACTOR}.use_rollout_log_probs=true"], f"{ACTOR}.use_rollout_log_probs has no effect"),
        ([BYPASS, f"{KEY}.loss_type=reinforce", f"{ACTOR}.policy_loss.loss_mode=vanilla"], "which is the policy loss"),
        ([f"{KEY}.loss_type=reinforce"], "bypass_mode is false"),
    ],
)
def test_keys_that_the_mode_makes_inert(overrides, line, composed):
    assert any(line in one for one in inert_choices(composed(*overrides), {}))
