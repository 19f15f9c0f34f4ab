import time

import pytest
from rl_rewards.format import compute_score


def score(response, **options):
    return compute_score(data_source="format", solution_str=response, **options)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("<think>a</think><answer>b</answer>", 1),
        ("\n<think>a\nb</think>\n\n<answer>b</answer>\n", 1),
        ("<think></think><answer>b</answer>", 0),
        ("<think>a</think><answer> </answer>", 0),
        ("<think>a</think> so <answer>b</answer>", 0),
        ("<think>a</think><answer>b</answer> bye", 0),
        ("hi <think>a</think><answer>b</answer>", 0),
        ("<answer>b</answer><think>a</think>", 0),
        ("<think>a<answer>b</answer></think>", 0),
        ("<think>a</think><answer>b", 0),
        ("<think>a</think><think>a</think><answer>b</answer>", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_tags(response, expected):
    result = score(response)
    assert result == expected
    assert isinstance(result, float)


def test_other_forms():
    assert score("a</think><answer>b</answer>", opened_by_prompt=True) == 1.0
    assert score("<plan>a</plan>", tags=["plan"]) == 1.0
    assert score("line\n#### 7", pattern=r".*#### \d+") == 1.0
    assert score("line\n#### 7!", pattern=r".*#### \d+") == 0.0


def test_b52_degenerate_responses_are_scored_quickly():
    started = time.process_time()
    for text in ("<think>" * 150_000, "</think>" * 150_000, "<" * 1_000_000):
        assert score(text) == 0.0
    assert time.process_time() - started < 2
