import json
import os
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from rl_rewards.gsm8k import compute_score, flexible_score


def score(response, gold, **options):
    return compute_score(data_source="openai/gsm8k", solution_str=response, ground_truth=gold, **options)


@pytest.mark.parametrize(
    ("response", "gold", "expected"),
    [
        ("#### -3", "-3", 1),
        ("#### -3", "3", 0),
        ("#### 1,234", "1234", 1),
        ("#### 1234", "1,234", 1),
        ("#### $18", "18", 1),
        ("#### 2.50", "2.5", 1),
        ("#### 7.", "7", 1),
        ("#### ", "7", 0),
        ("", "7", 0),
        ("#### 3 #### 4", "4", 1),
        ("the answer is 7", "7", 0),
    ],
)
def test_b46_signs_commas_decimals_units(response, gold, expected):
    result = score(response, gold)
    assert result == expected
    assert isinstance(result, float)


@pytest.mark.parametrize("gold", [4, "4", 4.0, np.int64(4), "4.0"])
def test_b42_ground_truth_may_be_a_number(gold):
    assert score("#### 4", gold) == 1.0


@pytest.mark.parametrize(
    ("response", "gold", "expected"),
    [
        ("-$5", "-5", 1),
        ("$-5", "-5", 1),
        ("#### - 5", "5", 0),
        ("#### .5", "0.5", 1),
        ("#### five", "5", 0),
        ("####18 apples", "18", 1),
    ],
)
def test_other_spellings(response, gold, expected):
    response = response if "####" in response else f"#### {response}"
    assert score(response, gold) == expected


def test_flexible_takes_the_last_number():
    assert score("first 3, so the answer is 7 apples.", "7", method="flexible") == 1.0
    assert score("no number", "7", method="flexible") == 0.0


def test_a_readable_wrong_answer_may_earn_something():
    assert score("#### 8", "7", format_score=0.1) == 0.1
    assert score("8", "7", format_score=0.1) == 0.0


def test_a_row_without_a_number_is_an_error_not_a_wrong_answer():
    with pytest.raises(ValueError, match="ground truth '' is not a number"):
        score("#### ", "")


@pytest.mark.parametrize(
    "text", ["1 " * 100_000, "####" * 50_000, "#### " + "9" * 100_000, "(" * 50_000 + "a", "-$" * 50_000]
)
def test_b52_degenerate_responses_are_scored_quickly(text):
    started = time.process_time()
    assert score(text, "7") == 0.0
    assert score(text, "7", method="flexible") == 0.0
    assert time.process_time() - started < 2


def test_the_flexible_reward_of_its_own():
    arguments = {"data_source": "x", "ground_truth": "7"}
    assert flexible_score(solution_str="so 3 and 7 apples", **arguments) == 1.0
    assert flexible_score(solution_str="#### 7 or 8", format_score=0.1, **arguments) == 0.1
    with pytest.raises(ValueError, match="GSM8K has no method 'loose'; it has strict and flexible"):
        score("#### 7", "7", method="loose")


@pytest.mark.parametrize("method", ["strict", "flexible"])
def test_a_response_that_is_no_text_is_no_answer(method):
    assert score(None, "7", method=method) == 0.0


@pytest.mark.parametrize("method", ["strict", "flexible"])
@pytest.mark.skipif("RL_TEST_DATA" not in os.environ, reason="RL_TEST_DATA names no folder with the real data")
def test_every_reference_answer_of_the_real_test_file_is_right_and_none_with_another_number(method):
    lines = (Path(os.environ["RL_TEST_DATA"]) / "gsm8k" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line)["answer"] for line in lines]
    assert len(answers) == 1319
    for answer in answers:
        solution, _, final = answer.rpartition("####")
        final = final.strip()
        assert score(answer, final, method=method) == 1.0
        assert score(answer, final.replace(",", ""), method=method) == 1.0
        number = Decimal(final.replace(",", ""))
        for changed in (number + 1, -number - 1, number * 10 + 1, f"{number}.5"):
            assert score(f"{solution}#### {changed}", final, method=method) == 0.0
