import time

import numpy as np
import pytest
from rl_rewards.errors import GroundTruthError
from rl_rewards.numeric import compute_score


def score(response, gold, **options):
    return compute_score(data_source="numeric", solution_str=response, ground_truth=gold, **options)


@pytest.mark.parametrize(
    ("response", "gold", "expected"),
    [
        ("so 3 and then 7", "7", 1),
        ("so 7 and then 3", "7", 0),
        ("Answer: 7 apples of 12", "7", 1),
        (r"\boxed{1,234}", 1234, 1),
        ("<answer>-3</answer>", "3", 0),
        ("<answer>none</answer> 3", "3", 0),
        ("0.3333333", 1 / 3, 1),
        ("0.333", 1 / 3, 0),
        ("1e-3", np.float64(0.001), 0),
        ("<answer>1e-3</answer>", 0.001, 1),
        ("no", "7", 0),
        ("", "0", 0),
        (None, "0", 0),
    ],
)
def test_numeric(response, gold, expected):
    result = score(response, gold)
    assert result == expected
    assert isinstance(result, float)


def test_the_larger_tolerance_holds():
    assert score("10.4", 10, rel_tol=0.05) == 1.0
    assert score("10.6", 10, rel_tol=0.05) == 0.0
    assert score("0.1", 0, abs_tol=0.1) == 1.0
    assert score("0.1", 0) == 0.0
    assert score("7", "7", extract="tag") == 0.0


def test_a_row_without_a_number_is_an_error():
    with pytest.raises(GroundTruthError):
        score("7", "seven")


def test_b52_degenerate_responses_are_scored_quickly():
    started = time.process_time()
    for text in ("1 " * 500_000, "9" * 1_000_000, "-$" * 500_000, "<answer>" + "1," * 500_000 + "</answer>"):
        assert score(text, "7") == 0.0
    assert time.process_time() - started < 4
