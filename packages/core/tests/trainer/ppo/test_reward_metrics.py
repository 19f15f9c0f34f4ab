import numpy as np
import pytest
from rl_core.contracts.reward import RewardResult
from rl_core.metrics import merge_metrics, metric_values
from rl_core.trainer.ppo.reward_metrics import group_metrics, reward_metrics

NAN = float("nan")


def values(results, sources):
    return metric_values(reward_metrics(results, sources))


def test_each_source_and_each_component_has_its_numbers():
    results = [
        RewardResult(1.0, {"format": 1, "why": "text"}),
        RewardResult(0.0, {"format": 0, "length": -2.0}),
        RewardResult(0.5, {"format": True}),
        RewardResult(None, error="boom"),
    ]
    assert values(results, ["a", "a", "b/c", "b/c"]) == {
        "reward/a/mean": 0.5,
        "reward/a/count": 2,
        "reward/a/missing": 0,
        "reward/b/c/mean": 0.5,
        "reward/b/c/count": 1,
        "reward/b/c/missing": 1,
        "reward_extra/format/mean": pytest.approx(2 / 3),
        "reward_extra/format/a/mean": 0.5,
        "reward_extra/format/b/c/mean": 1.0,
        "reward_extra/length/mean": -2.0,
        "reward_extra/length/a/mean": -2.0,
    }


def test_b94_a_nan_component_is_left_out_of_its_mean_and_is_never_zero():
    observed = [0.5, NAN, NAN, 0.8, 0.6, 0.7]
    metrics = reward_metrics([RewardResult(1.0, {"part": value}) for value in observed], list("aabbbb"))
    assert metrics["reward_extra/part/mean"].value == pytest.approx(0.65)
    assert metrics["reward_extra/part/mean"].count == 4
    only_nan = values([RewardResult(1.0, {"part": NAN}), RewardResult(0.0, {"part": 0.2})], ["a", "b"])
    assert "reward_extra/part/a/mean" not in only_nan
    assert only_nan["reward_extra/part/b/mean"] == 0.2


def test_a_source_of_which_every_reward_is_missing_has_counts_and_no_mean():
    found = values([RewardResult(None, error="boom"), RewardResult(1.0)], ["a", "b"])
    assert found["reward/a/missing"] == 1
    assert found["reward/a/count"] == 0
    assert "reward/a/mean" not in found


def test_halves_of_a_batch_merge_to_the_whole():
    results = [RewardResult(float(number), {"part": number}) for number in range(5)]
    halves = [reward_metrics(results[:2], ["a"] * 2), reward_metrics(results[2:], ["a"] * 3)]
    assert metric_values(merge_metrics(halves)) == values(results, ["a"] * 5)


def test_without_data_sources_there_are_the_components_only():
    assert values([RewardResult(1.0, {"part": 2})], None) == {"reward_extra/part/mean": 2.0}


def groups(scores, uids, accuracy=None):
    extras = [{}] * len(scores) if accuracy is None else [{"acc": value} for value in accuracy]
    results = [RewardResult(score, extra) for score, extra in zip(scores, extras, strict=True)]
    return metric_values(group_metrics(results, list(uids)))


def test_shares_of_groups_by_hand():
    # All right; none; mixed; equal and half right; one answer alone, which is no group.
    assert groups([1, 1, 0, 0, 1, 0, 0.5, 0.5, 1], "aabbccdde") == {
        "training/solve_all": 0.25,
        "training/solve_none": 0.5,
        "training/groups_without_spread": 0.75,
    }


def test_accuracy_says_what_is_solved_and_the_score_what_has_spread():
    assert groups([0.9, 0.7, 0.2, 0.2], "aabb", accuracy=[1, True, 0, np.float64(0.0)]) == {
        "training/solve_all": 0.5,
        "training/solve_none": 0.5,
        "training/groups_without_spread": 0.5,
    }


@pytest.mark.parametrize("unknown", [None, NAN, "yes"])
def test_where_an_accuracy_is_unknown_the_score_decides(unknown):
    assert groups([1, 1], "aa", accuracy=[0, unknown])["training/solve_all"] == 1.0


def test_an_answer_without_a_reward_is_no_member_of_its_group():
    results = [RewardResult(1.0), RewardResult(None, error="boom"), RewardResult(1.0), RewardResult(0.0)]
    found = metric_values(group_metrics(results, list("aaab")))
    assert found["training/solve_all"] == found["training/groups_without_spread"] == 1.0


def test_single_answers_are_no_groups():
    assert groups([1, 0], "ab") == {}
    assert group_metrics([RewardResult(1.0)], None) == {}
