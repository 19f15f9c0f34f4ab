import pytest
from rl_rewards.errors import GroundTruthError
from rl_rewards.geometry3k import compute_score


def score(response, gold=r"2\sqrt{3}", **options):
    return compute_score(data_source="hiyouga/geometry3k", solution_str=response, ground_truth=gold, **options)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"<think>x</think> so \boxed{2\sqrt3}", 1.0),
        (r"<think>x</think> so \boxed{3}", 0.1),
        (r"so \boxed{\sqrt{12}}", 0.9),
        (r"<think>\boxed{2\sqrt3}</think> done", 0.9),
        (r"<think>a</think><think>b</think>\boxed{3}", 0.0),
        ("<think>x</think> so 2", 0.0),
        ("", 0.0),
    ],
)
def test_answer_and_form(response, expected):
    assert score(response) == pytest.approx(expected)


def test_the_weight_of_the_form():
    assert score(r"<think>x</think>\boxed{1}", format_weight=0.5) == 0.5
    assert score(r"\boxed{\sqrt{12}}", format_weight=0.0) == 1.0
    with pytest.raises(GroundTruthError):
        score(r"\boxed{1}", "")
