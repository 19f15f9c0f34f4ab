import pytest
import torch
from rl_core.algorithms.advantages.remax import remax
from rl_core.algorithms.inputs import AdvantageInputs
from rl_core.errors import ShapeError

NAN = float("nan")


def _inputs(rewards, mask, baselines):
    return AdvantageInputs(
        token_level_rewards=torch.tensor(rewards),
        response_mask=torch.tensor(mask).bool(),
        extras={"reward_baselines": torch.tensor(baselines)},
    )


def test_returns_above_the_greedy_reward():
    advantages, returns = remax(_inputs([[0.5, 1.0], [0.0, 0.25]], [[1, 1], [1, 1]], [0.25, 1.0]), None)
    assert returns.tolist() == [[1.5, 1.0], [0.25, 0.25]]
    assert advantages.tolist() == [[1.25, 0.75], [-0.75, -0.75]]


def test_b23_a_return_reaches_across_an_observation():
    advantages, _ = remax(_inputs([[0.0, 0.5, NAN, 9.0, 0.0, 1.0]], [[1, 1, 0, 0, 1, 1]], [0.5]), None)
    assert advantages.tolist() == [[1.0, 1.0, 0.0, 0.0, 0.5, 0.5]]


def test_rows_that_lack_either_reward_are_zero():
    inputs = _inputs([[1.0], [NAN], [1.0], [1.0]], [[1], [1], [1], [0]], [NAN, 0.0, 0.0, 0.0])
    advantages, _ = remax(inputs, None)
    assert advantages.tolist() == [[0.0], [0.0], [1.0], [0.0]]


def test_as_good_as_greedy_is_exactly_zero():
    assert remax(_inputs([[0.0, 0.1]], [[1, 1]], [0.1]), None)[0].count_nonzero() == 0


def test_one_baseline_a_row():
    with pytest.raises(ShapeError, match="reward_baselines"):
        remax(_inputs([[1.0]], [[1]], [0.0, 0.0]), None)
