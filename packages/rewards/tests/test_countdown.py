import time

import numpy as np
import pytest
from rl_rewards.countdown import compute_score
from rl_rewards.errors import GroundTruthError

PUZZLE = {"target": 15, "numbers": [3, 5]}


def score(response, gold=PUZZLE, **options):
    return compute_score(data_source="countdown", solution_str=response, ground_truth=gold, **options)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("3*5", 1),
        ("10+5", 0),
        ("15", 0),
        ("3*5*1", 0),
        ("5+5+5", 0),
        ("3**5-228", 0),
        ('__import__("os")', 0),
        ("", 0),
        (None, 0),
        ("3/0", 0),
        ("9**9**9", 0),
    ],
)
def test_b56_only_the_given_numbers_each_of_them_once(response, expected):
    started = time.process_time()
    result = score(response)
    assert result == expected
    assert isinstance(result, float)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("thinking <answer> (5) * 3 = 15 </answer>", 1),
        (r"so \boxed{3 \times 5}", 1),
        ("The answer is 3 × 5.", 1),
        ("first 3+5 = 8, no\n3 * 5", 1),
        ("<answer>35</answer>", 0),
        ("<answer>3*5; 1</answer>", 0),
        ("<answer>(lambda: 15)()</answer>", 0),
        ("<answer>3*True*5</answer>", 0),
        ("<answer>3*5j</answer>", 0),
        ("<answer>3//5</answer>", 0),
        ("<answer>[3*5 for x in y]</answer>", 0),
        ("<answer>1e999*3</answer>", 0),
    ],
)
def test_what_is_read(response, expected):
    assert score(response) == expected


def test_fractions_are_exact():
    assert score("8/(3-8/3)", {"target": 24, "numbers": [3, 3, 8, 8]}) == 1.0
    assert score("-(5-8)", {"target": 3, "numbers": [8, 5]}) == 1.0


@pytest.mark.parametrize(
    ("gold", "extra"),
    [
        ('{"target": 15, "numbers": [3, 5]}', None),
        ({"target": np.int64(15), "numbers": np.array([3, 5])}, None),
        ({"target": "15", "nums": ["3", "5"]}, {"numbers": None, "nums": [3, 5]}),
        (15, {"numbers": [3, 5]}),
        ("15", {"nums": [3, 5]}),
    ],
)
def test_b42_puzzles_in_every_form(gold, extra):
    if extra and extra.get("numbers", 0) is None:
        extra = {"nums": extra["nums"]}
    assert score("3*5", gold, extra_info=extra) == 1.0
    assert score("3+5", gold, extra_info=extra) == 0.0


def test_some_numbers_may_be_left_out_if_said_so():
    puzzle = {"target": 15, "numbers": [3, 5, 7]}
    assert score("3*5", puzzle) == 0.0
    assert score("3*5", puzzle, use_all=False) == 1.0
    assert score("3*5*1", puzzle, use_all=False) == 0.0


def test_the_floor_is_for_expressions():
    assert score("3+5", format_score=0.1) == 0.1
    assert score("5/0*3", {"target": 1, "numbers": [0, 3, 5]}, format_score=0.1) == 0.1
    assert score("import os", format_score=0.1) == score(None, format_score=0.1) == 0.0


@pytest.mark.parametrize("gold", [None, 15, {"target": 15}, {"numbers": [3]}, {"target": 1, "numbers": ["x"]}, "x"])
def test_a_row_without_a_puzzle_is_an_error(gold):
    with pytest.raises(GroundTruthError, match="has no target with numbers"):
        score("3*5", gold)


@pytest.mark.parametrize(
    "text", ["(" * 50_000 + "3" + ")" * 50_000, "-" * 400 + "3", "(" * 240 + "3" + ")" * 240, "3+" * 240]
)
def test_b52_degenerate_responses_are_scored_quickly(text):
    started = time.process_time()
    assert score(text) == 0.0
    assert score(f"<answer>{text}</answer>") == 0.0
    assert time.process_time() - started < 1
