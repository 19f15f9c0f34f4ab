import time
from collections import Counter
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rl_core.trainer.ppo.validation_metrics import (
    MAJORITY_SUBSETS,
    ValidationAnswer,
    expected_best,
    expected_majority,
    validation_metrics,
)

NAN = float("nan")


@pytest.mark.parametrize(("k", "expected"), [(1, 0.25), (2, 0.5), (4, 1.0)])
def test_b96_pass_at_k_is_unbiased(k, expected):
    assert expected_best([1, 0, 0, 0], k)[0] == pytest.approx(expected)
    assert expected_best([0, 0, 0, 0], k)[0] == 0


def test_expected_best_equals_the_mean_over_all_subsets():
    scores = [0.3, -1.0, 2.5, 2.5, 0.0]
    for k in range(1, 6):
        best = [max(subset) for subset in combinations(scores, k)]
        assert expected_best(scores, k) == (pytest.approx(np.mean(best)), pytest.approx(np.std(best)))


def test_expected_best_of_thousands():
    assert expected_best([1.0] + [0.0] * 4095, 2048)[0] == pytest.approx(0.5)


def answers(source, uid, *scores, **extra):
    return [
        ValidationAnswer(source, uid, score, {key: values[i] for key, values in extra.items()})
        for i, score in enumerate(scores)
    ]


def test_names_and_values_of_two_prompts():
    metrics = validation_metrics(answers("gsm", "a", 1, 0, 0, 0) + answers("gsm", "b", 0, 0, 0, 0))

    assert metrics["val-core/gsm/reward/mean@4"] == pytest.approx(0.125)
    assert metrics["val-core/gsm/reward/best@4/mean"] == pytest.approx(0.5)
    assert metrics["val-aux/gsm/reward/best@2/mean"] == pytest.approx(0.25)
    assert metrics["val-aux/gsm/reward/worst@4/mean"] == 0
    assert metrics["val-aux/gsm/reward/std@4"] == pytest.approx(np.std([1, 0, 0, 0]) / 2)


def test_accuracy_takes_the_headline_where_the_reward_gives_it():
    metrics = validation_metrics(answers("s", "a", 0.5, acc=[1.0]))
    assert metrics == {"val-aux/s/reward/mean@1": 0.5, "val-core/s/acc/mean@1": 1.0}


def test_majority_needs_predictions():
    metrics = validation_metrics(answers("s", "a", 1, 1, 0, 0, pred=["7", "7", "8", "9"]))
    # Of the six pairs one is 7-7; in the four that hold one 7 the vote is split, in 8-9 nobody is right.
    assert metrics["val-aux/s/reward/maj@2/mean"] == pytest.approx((1 + 4 * 0.5 + 0) / 6)
    assert metrics["val-core/s/reward/maj@4/mean"] == 1
    assert not any("maj" in name for name in validation_metrics(answers("s", "a", 1, 0)))


def test_prompts_weigh_the_same_although_an_answer_is_missing():
    metrics = validation_metrics(answers("s", "a", 1, 1) + answers("s", "b", 0))
    assert metrics["val-core/s/reward/mean@2"] == 0.5
    assert metrics["val-core/s/reward/best@2/mean"] == 1.0


def test_no_answers_no_metrics():
    assert validation_metrics([]) == {}


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 1.0, 0.25])), min_size=1, max_size=6),
    st.integers(1, 6),
)
def test_the_majority_equals_a_count_over_all_subsets(answered, k):
    k = min(k, len(answered))
    voted = []
    for subset in combinations(answered, k):
        counts = Counter(prediction for prediction, _ in subset)
        winners = [prediction for prediction, count in counts.items() if count == max(counts.values())]
        means = [np.mean([score for said, score in subset if said == winner]) for winner in winners]
        voted.append(np.mean(means))
    predictions, values = zip(*answered, strict=True)
    expected = (pytest.approx(np.mean(voted)), pytest.approx(np.std(voted), abs=1e-12))
    assert expected_majority(values, predictions, k) == expected
    assert expected_majority(values[::-1], predictions[::-1], k)[0] == pytest.approx(np.mean(voted))


def test_a_vote_of_two_is_worth_no_more_than_one_answer():
    values, predictions = [1.0, 0.0, 0.0, 1.0, 0.0], ["r", "x", "y", "r", "x"]
    assert expected_majority(values, predictions, 2)[0] == pytest.approx(np.mean(values))


def test_many_answers_are_voted_on_by_drawn_subsets_at_a_bounded_cost():
    values = [1.0] * 60 + [0.0] * 40
    predictions = ["right"] * 60 + [f"wrong {number}" for number in range(40)]
    assert comb(100, 8) > MAJORITY_SUBSETS
    mean, _ = expected_majority(values, predictions, 8)
    assert mean == pytest.approx(1.0, abs=0.02)
    assert expected_majority(values, predictions, 8) == expected_majority(values, predictions, 8)
    started = time.perf_counter()
    for _ in range(50):
        expected_majority(values, predictions, 32)
    assert time.perf_counter() - started < 10


def test_prompts_with_fewer_answers_than_k_are_left_out_and_counted():
    metrics = validation_metrics(answers("s", "a", 1, 0, 0, 0) + answers("s", "b", 1, 1, 0))
    assert metrics["val-core/s/reward/best@4/mean"] == 1.0
    assert metrics["val-aux/s/reward/best@4/left_out"] == 1
    # Two prompts have two answers: 1/2 of the pairs of a, every pair of b.
    assert metrics["val-aux/s/reward/best@2/mean"] == pytest.approx((0.5 + 1.0) / 2)
    assert metrics["val-aux/s/reward/worst@2/mean"] == pytest.approx((0.0 + 1 / 3) / 2)
    assert "val-aux/s/reward/best@2/left_out" not in metrics
    assert not any("@3" in name for name in metrics)


def test_names_do_not_depend_on_what_is_missing():
    metrics = validation_metrics(answers("s", "a", 1, 0, 0), num_answers=4)
    assert metrics["val-core/s/reward/mean@4"] == pytest.approx(1 / 3)
    assert metrics["val-aux/s/reward/best@4/left_out"] == 1
    assert "val-core/s/reward/best@4/mean" not in metrics


def test_b94_a_value_that_is_nan_or_absent_is_not_observed():
    metrics = validation_metrics(answers("s", "a", 1, 0, 0, part=[0.5, NAN, None]) + answers("s", "b", 1, part=[NAN]))
    assert metrics["val-aux/s/part/mean@3"] == 0.5
    assert metrics["val-core/s/reward/mean@3"] == pytest.approx((1 / 3 + 1) / 2)
    assert not any(np.isnan(value) for value in metrics.values())
    assert not any("part" in name for name in validation_metrics(answers("s", "a", 1, part=[NAN])))


def test_b94_a_source_without_a_value_has_no_number_for_it():
    metrics = validation_metrics(answers("s", "a", 1, part=[NAN]) + answers("t", "b", 1, part=[0.5]))
    assert [name for name in metrics if "part" in name] == ["val-aux/t/part/mean@1"]
