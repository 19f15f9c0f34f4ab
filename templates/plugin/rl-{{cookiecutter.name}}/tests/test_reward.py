from __future__ import annotations

import pytest
from rl_testing.contracts.reward import RewardCase, RewardContract
from rl_{{cookiecutter.name}}.reward import compute_score


class TestComputeScore(RewardContract):
    """What every reward function promises: any response, any thread, any process, no state."""

    compute_score = staticmethod(compute_score)
    cases = (
        RewardCase("42", "42", 1.0),
        RewardCase("4x5y", "45", 0.5),
        RewardCase("4", 42, 1.0),
        RewardCase("no", "7", 0.0),
    )


@pytest.mark.parametrize(("response", "exact"), [(" 42 ", 1.0), ("24", 0.0)])
def test_an_exact_answer_is_reported(response, exact):
    assert compute_score("{{cookiecutter.name}}/overlap", response, 42) == {"score": 1.0, "exact": exact}
