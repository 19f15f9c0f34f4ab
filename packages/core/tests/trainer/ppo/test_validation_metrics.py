from itertools import combinations

import numpy as np
import pytest
from rl_core.trainer.ppo.validation_metrics import ValidationAnswer, expected_best, validation_metrics


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
    # Of the six pairs one is 7-7 and four hold a 7 with an earlier index, so the first met wins.
    assert metrics["val-aux/s/reward/maj@2/mean"] == pytest.approx(5 / 6)
    assert metrics["val-core/s/reward/maj@4/mean"] == 1
    assert not any("maj" in name for name in validation_metrics(answers("s", "a", 1, 0)))


def test_prompts_weigh_the_same_although_an_answer_is_missing():
    metrics = validation_metrics(answers("s", "a", 1, 1) + answers("s", "b", 0))
    assert metrics["val-core/s/reward/mean@2"] == 0.5
    assert metrics["val-core/s/reward/best@2/mean"] == 1.0


def test_no_answers_no_metrics():
    assert validation_metrics([]) == {}
