import statistics
from types import SimpleNamespace

import pytest
import torch
from rl_core.algorithms.advantages.reinforce_plus_plus import reinforce_plus_plus
from rl_core.algorithms.inputs import AdvantageInputs
from rl_core.errors import ConfigError

NAN = float("nan")
CONFIG = SimpleNamespace(gamma=1.0)


def _inputs(rewards, mask):
    return AdvantageInputs(
        token_level_rewards=torch.tensor(rewards, dtype=torch.float64), response_mask=torch.tensor(mask).bool()
    )


def test_returns_of_the_batch_are_whitened():
    inputs = _inputs([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[1, 1, 0], [1, 1, 1]])
    advantages, returns = reinforce_plus_plus(inputs, SimpleNamespace(gamma=0.5))
    assert returns.tolist() == [[0.5, 1.0, 0.0], [0.0, 0.0, 0.0]]
    values = [0.5, 1.0, 0.0, 0.0, 0.0]
    mean, std = statistics.fmean(values), statistics.stdev(values)
    expected = [(value - mean) / std for value in values]
    assert advantages[inputs.response_mask].tolist() == pytest.approx(expected, abs=1e-6)
    assert advantages[0, 2].item() == 0.0


def test_b23_a_return_reaches_across_an_observation():
    inputs = _inputs([[0.0, 0.5, NAN, 9.0, 0.0, 1.0]], [[1, 1, 0, 0, 1, 1]])
    _, returns = reinforce_plus_plus(inputs, CONFIG)
    assert returns.tolist() == [[1.5, 1.5, 0.0, 0.0, 1.0, 1.0]]


def test_a_missing_reward_stays_out_of_the_whitening():
    with_it = _inputs([[1.0, 0.0], [NAN, 3.0], [0.0, 2.0]], [[1, 1]] * 3)
    without = _inputs([[1.0, 0.0], [0.0, 2.0]], [[1, 1]] * 2)
    advantages, returns = reinforce_plus_plus(with_it, CONFIG)
    assert torch.equal(advantages[[0, 2]], reinforce_plus_plus(without, CONFIG)[0])
    assert advantages[1].count_nonzero() == returns[1].count_nonzero() == 0


def test_no_spread_is_exactly_zero():
    advantages, returns = reinforce_plus_plus(_inputs([[0.0, 0.1], [0.0, 0.1]], [[1, 1]] * 2), CONFIG)
    assert advantages.count_nonzero() == 0
    assert returns.tolist() == [[0.1, 0.1], [0.1, 0.1]]
    assert reinforce_plus_plus(_inputs([[0.7]], [[1]]), CONFIG)[0].tolist() == [[0.0]]


def test_gamma_outside_the_unit_interval():
    with pytest.raises(ConfigError, match=r"algorithm\.gamma"):
        reinforce_plus_plus(_inputs([[1.0]], [[1]]), SimpleNamespace(gamma=1.5))
