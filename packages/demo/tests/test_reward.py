import pytest
from rl_demo.reward import compute_score


@pytest.mark.parametrize(
    ("response", "score", "shows_work"),
    [
        ("85", 1, 0),
        ("75", 0, 0),
        ("7+8=15 so 85", 1, 1),
        ("7+8=15 so 75", 0, 1),
        ("7+8=13 so 85", 1, 1),  # the work is not looked at
        ("85 so 75", 0, 1),
        (" so 85", 1, 0),
        ("7+8=15 so ", 0, 1),
        ("7+8=15", 0, 0),
        ("185", 0, 0),
        ("85=", 0, 0),
        ("085", 0, 0),
        ("", 0, 0),
    ],
)
def test_only_the_number_at_the_end_counts(response, score, shows_work):
    found = compute_score(data_source="demo/sums", solution_str=response, ground_truth="85")
    assert found == {"score": score, "acc": score, "shows_work": shows_work}


def test_the_ground_truth_may_be_a_number():
    assert compute_score("demo/sums", "85", 85)["score"] == 1
