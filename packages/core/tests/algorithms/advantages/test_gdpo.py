import statistics
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.algorithms.advantages.gdpo import gdpo
from rl_core.errors import ConfigError, DataError

NAN = float("nan")


def _config(keys, weights=None, by_std=True):
    return SimpleNamespace(gdpo_reward_keys=keys, gdpo_reward_weights=weights, norm_adv_by_std_in_grpo=by_std)


def _extras(**columns):
    return {f"reward_extra/{name}": np.array(column, dtype=object) for name, column in columns.items()}


def _normalised(group):
    return [(r - statistics.fmean(group)) / (statistics.stdev(group) + 1e-6) for r in group]


def test_components_are_normalised_before_they_are_added(outcomes, rows):
    right, short = [1, 0, 0, True], [100.0, 200.0, 50.0, 70.0]
    inputs = outcomes([9.0] * 4, list("aabb"), [1, 2, 3, 4], **_extras(right=right, short=short))
    total = [
        2.0 * a + 0.5 * b
        for a, b in zip(
            _normalised(right[:2]) + _normalised(right[2:]),
            _normalised(short[:2]) + _normalised(short[2:]),
            strict=True,
        )
    ]
    expected = [(value - statistics.fmean(total)) / statistics.stdev(total) for value in total]
    advantages, returns = gdpo(inputs, _config(["right", "short"], [2.0, 0.5]))
    assert rows(advantages, inputs) == pytest.approx(expected, abs=1e-6)
    assert torch.equal(returns, advantages)


def test_unequal_pairs_that_grpo_would_call_equal_stay_apart(outcomes, rows):
    # Figure 2 of the paper: (0, 1), (0, 2), (1, 2) against each other are two kinds for GRPO and three here.
    first, second = [0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1]
    inputs = outcomes([0.0] * 6, list("aabbcc"), **_extras(first=first, second=second))
    found = rows(gdpo(inputs, _config(["first", "second"]))[0], inputs)
    assert found[3] == pytest.approx(2 * found[1], rel=1e-5)
    assert found[1] == pytest.approx(found[5])


def test_without_the_deviation(outcomes, rows):
    inputs = outcomes([0.0] * 4, list("aabb"), **_extras(x=[1.0, 0.0, 10.0, 0.0]))
    values = [0.5, -0.5, 5.0, -5.0]
    found = rows(gdpo(inputs, _config(["x"], by_std=False))[0], inputs)
    assert found == pytest.approx([value / statistics.stdev(values) for value in values], abs=1e-6)


@pytest.mark.parametrize("missing", [None, NAN, float("inf")])
def test_one_missing_component_takes_the_row_out(outcomes, rows, missing):
    config = _config(["x", "y"])
    inputs = outcomes([0.0] * 4, list("aaab"), **_extras(x=[1, 2, 7, 0.3], y=[3, 0, missing, 0.1]))
    found = rows(gdpo(inputs, config)[0], inputs)
    without = outcomes([0.0] * 3, list("aab"), **_extras(x=[1, 2, 0.3], y=[3, 0, 0.1]))
    expected = rows(gdpo(without, config)[0], without)
    assert found == pytest.approx([*expected[:2], 0.0, expected[2]], abs=1e-12)


def test_a_missing_outcome_takes_the_row_out_too(outcomes, rows):
    inputs = outcomes([0.0, NAN, 0.0], list("aaa"), **_extras(x=[1.0, 9.0, 0.0]))
    assert rows(gdpo(inputs, _config(["x"]))[0], inputs) == pytest.approx([0.7071068, 0.0, -0.7071068], abs=1e-6)


def test_no_spread_is_exactly_zero(outcomes):
    config = _config(["x", "y"])
    inputs = outcomes([0.0] * 7, "a" * 7, **_extras(x=[0.1] * 7, y=[0.3] * 7))
    assert gdpo(inputs, config)[0].count_nonzero() == 0
    assert gdpo(outcomes([0.0], ["a"], **_extras(x=[0.7], y=[1.0])), config)[0].count_nonzero() == 0


@pytest.mark.parametrize("config", [_config(None), _config([]), _config(["x"], [1.0, 2.0]), _config(["x", "x"])])
def test_keys_and_weights_that_do_not_fit(outcomes, config):
    with pytest.raises(ConfigError, match="gdpo_reward_keys"):
        gdpo(outcomes([0.0], ["a"], **_extras(x=[1.0])), config)


@pytest.mark.parametrize("absent", [{}, {"z": [None, None]}])
def test_a_key_that_no_row_has(outcomes, absent):
    inputs = outcomes([0.0, 0.0], ["a", "a"], **_extras(x=[1.0, 0.0], y=[1.0, 0.0], **absent))
    with pytest.raises(DataError, match=r"'z', which no row's reward gives; found x, y"):
        gdpo(inputs, _config(["x", "z"]))


def test_a_component_that_is_no_number(outcomes):
    with pytest.raises(DataError, match="str 'good'"):
        gdpo(outcomes([0.0, 0.0], ["a", "a"], **_extras(x=[1.0, "good"])), _config(["x"]))
