from decimal import Decimal

import numpy as np
import pytest
from rl_rewards.errors import GroundTruthError
from rl_rewards.numbers import gold_number, last_number, parse_number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,234.50", "1234.5"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("7.", "7"),
        (".5", "0.5"),
        (" +3 ", "3"),
        (4, "4"),
        (np.int64(4), "4"),
        (np.float32(0.5), "0.5"),
        (1e22, "1e22"),
        ("2.5e-3", "0.0025"),
    ],
)
def test_numbers(text, expected):
    assert parse_number(text) == Decimal(expected)


@pytest.mark.parametrize("text", ["", "--3", "five", "1 2", "9" * 401, "9" * 10**6, None, "1e99999", "nan", "$", "-"])
def test_no_numbers(text):
    assert parse_number(text) is None


def test_the_right_number_of_a_row():
    assert gold_number("1,234") == 1234
    for truth in ("", None, "x", True, [1]):
        with pytest.raises(GroundTruthError, match=r"is not a number; the row needs one in reward_model\.ground_truth"):
            gold_number(truth)


def test_last_number():
    assert last_number("3 of -4 and 1,200 apples.") == " 1,200"
    assert last_number("none") == ""
