from __future__ import annotations

import asyncio

import pytest
from rl_testing.fakes.reward import abstain, brevity, count_letter, exact_match


def arguments(text, truth):
    return {"data_source": "test", "solution_str": text, "ground_truth": truth}


@pytest.mark.parametrize(
    ("text", "truth", "score"), [("abca", "a", 0.5), ("abca", None, 0.5), ("abca", "c", 0.25), ("", "a", 0.0)]
)
def test_count_letter(text, truth, score):
    assert count_letter(**arguments(text, truth)) == score


def test_exact_match():
    assert exact_match(**arguments(" 4 ", 4)) == {"score": 1.0, "pred": "4", "length": 3}
    assert exact_match(**arguments("5", "4"))["score"] == 0.0


def test_brevity():
    assert asyncio.run(brevity(**arguments("abc", ""))) == 0.25


def test_abstain():
    with pytest.raises(ValueError, match="3 characters"):
        abstain(**arguments("abc", ""))
