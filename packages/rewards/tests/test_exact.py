import pytest
from rl_rewards.errors import GroundTruthError
from rl_rewards.exact import compute_score


def score(response, gold, **options):
    return compute_score(data_source="exact", solution_str=response, ground_truth=gold, **options)


@pytest.mark.parametrize(
    ("response", "gold", "expected"),
    [
        ("Paris", "Paris", 1),
        (" Paris\n", "Paris", 1),
        ("paris", "Paris", 0),
        ("It is Paris", "Paris", 0),
        ("It is <answer>Paris</answer>", "Paris", 1),
        ("It is Lyon. Answer: Paris", ["Lyon", "Paris"], 1),
        ("#### 4", 4, 1),
        ("4.0", 4, 0),
        ("<think>Paris</think>Lyon", "Paris", 0),
        ("", "Paris", 0),
        (None, "Paris", 0),
    ],
)
def test_exact(response, gold, expected):
    result = score(response, gold)
    assert result == expected
    assert isinstance(result, float)


def test_options():
    assert score("PARIS", "paris", ignore_case=True) == 1.0
    assert score("New   York\nCity", "New York City", ignore_spaces=True) == 1.0
    assert score("New   York", "New York") == 0.0
    assert score("<answer>x</answer>", "x", extract="boxed") == 0.0
    with pytest.raises(ValueError, match=r"extract names \['tags'\]"):
        score("x", "x", extract="tags")


def test_a_row_without_a_right_text_is_an_error():
    with pytest.raises(GroundTruthError):
        score("", "")
