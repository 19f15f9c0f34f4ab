import statistics

import pytest
import torch
from rl_core.algorithms.advantages.reinforce_plus_plus_baseline import reinforce_plus_plus_baseline

NAN = float("nan")


def test_the_group_shifts_and_the_batch_scales(outcomes, rows):
    inputs = outcomes([1.0, 0.0, 10.0, 4.0], list("aabb"), [1, 2, 1, 1])
    per_token = [0.5, -0.5, -0.5, 3.0, -3.0]
    mean, std = statistics.fmean(per_token), statistics.stdev(per_token)
    expected = [(value - mean) / std for value in (0.5, -0.5, 3.0, -3.0)]
    advantages, returns = reinforce_plus_plus_baseline(inputs, None)
    assert rows(advantages, inputs) == pytest.approx(expected, abs=1e-6)
    assert torch.equal(returns, advantages)


def test_groups_without_spread_are_exactly_zero(outcomes):
    inputs = outcomes([0.1] * 7 + [0.3] * 3, "a" * 7 + "b" * 3)
    assert reinforce_plus_plus_baseline(inputs, None)[0].count_nonzero() == 0


def test_a_row_alone_keeps_its_reward_before_whitening(outcomes, rows):
    inputs = outcomes([0.7, 1.0, 0.0], list("abb"))
    values = [0.7, 0.5, -0.5]
    mean, std = statistics.fmean(values), statistics.stdev(values)
    found = rows(reinforce_plus_plus_baseline(inputs, None)[0], inputs)
    assert found == pytest.approx([(value - mean) / std for value in values], abs=1e-6)


def test_a_missing_reward_changes_nothing_for_the_others(outcomes, rows):
    with_it, without = outcomes([1.0, NAN, 0.0, 3.0], list("aaab")), outcomes([1.0, 0.0, 3.0], list("aab"))
    found = rows(reinforce_plus_plus_baseline(with_it, None)[0], with_it)
    assert found[1] == 0.0
    others = rows(reinforce_plus_plus_baseline(without, None)[0], without)
    assert [found[0], *found[2:]] == pytest.approx(others, abs=1e-12)
