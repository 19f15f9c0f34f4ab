import time

import numpy as np
import pytest
from rl_rewards.errors import GroundTruthError
from rl_rewards.search_qa import compute_score, f1_score, normalise


def score(response, gold, **options):
    return compute_score(data_source="searchR1_nq", solution_str=response, ground_truth=gold, **options)


@pytest.mark.parametrize(
    ("response", "gold", "expected"),
    [
        ("<answer>The Eiffel Tower!</answer>", "eiffel tower", 1),
        ("<answer>Eiffel</answer>", "Eiffel Tower", 0),
        ("<answer>NYC</answer>", {"target": ["New York", "NYC"]}, 1),
        ("<answer>NYC</answer>", {"target": np.array(["New York", "NYC"], dtype=object)}, 1),
        ("<answer>1,000</answer>", 1000, 1),
        ("<answer>x</answer> <answer>y</answer>", ["x"], 0),
        ("y", ["y"], 0),
        ("<answer>the</answer>", "the", 0),
        ("", "y", 0),
        (None, "y", 0),
    ],
)
def test_exact_match(response, gold, expected):
    result = score(response, gold)
    assert result == expected
    assert isinstance(result, float)


def test_f1_of_the_best_right_text():
    # Two of three words are right, and two of two: 2 * 2 / (3 + 2).
    response = "<answer>Barack Hussein Obama</answer>"
    assert score(response, ["Biden", "Barack Obama"], metric="f1") == pytest.approx(0.8)
    assert f1_score(data_source="x", solution_str=response, ground_truth="Barack Obama") == pytest.approx(0.8)
    # A word that is said twice is in common once.
    assert score("<answer>obama obama</answer>", "Obama", metric="f1") == pytest.approx(2 / 3)


def test_contains_whole_words():
    assert score("<answer>in New York City</answer>", "new york", metric="contains") == 1.0
    assert score("<answer>in Newer York</answer>", "new", metric="contains") == 0.0


def test_options():
    assert score("y", "y", extract="all") == 1.0
    with pytest.raises(ValueError, match="metric is 'rouge'"):
        score("y", "y", metric="rouge")
    with pytest.raises(GroundTruthError):
        score("y", {"target": []})


def test_normalise():
    assert normalise("  An apple, a   pear; THE end.") == "apple pear end"


def test_b52_degenerate_responses_are_scored_quickly():
    started = time.process_time()
    for text in ("<answer>" + "a " * 500_000 + "</answer>", "<answer>" * 120_000 + "</answer>" * 120_000):
        assert score(text, "x y", metric="f1") == 0.0
    assert time.process_time() - started < 2
