import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rl_core.algorithms.advantages.rloo import rloo
from rl_core.errors import DataError

NAN = float("nan")


def test_each_reward_against_the_mean_of_the_others(outcomes, rows):
    inputs = outcomes([1.0, 0.0, 0.5, 2.0, 4.0], list("aaabb"), [1, 2, 3, 4, 1])
    advantages, returns = rloo(inputs, None)
    assert rows(advantages, inputs) == pytest.approx([0.75, -0.75, 0.0, -2.0, 2.0])
    assert torch.equal(returns, advantages)


@pytest.mark.parametrize("reward", [0.1, 1 / 3, -7.7])
def test_equal_rewards_are_exactly_zero(outcomes, reward):
    assert rloo(outcomes([reward] * 7, "p" * 7), None)[0].count_nonzero() == 0


def test_a_row_alone_keeps_its_reward(outcomes, rows):
    inputs = outcomes([0.7, 1.0, 0.0, NAN, 0.3], ["a", "b", "b", "c", "c"])
    assert rows(rloo(inputs, None)[0], inputs) == pytest.approx([0.7, 1.0, -1.0, 0.0, 0.3])


def test_without_uids(outcomes):
    inputs = outcomes([1.0], ["a"])
    object.__setattr__(inputs, "uid", None)
    with pytest.raises(DataError, match="rloo compares"):
        rloo(inputs, None)


def _slow(rewards, uid):
    found = []
    for i, reward in enumerate(rewards):
        others = [r for j, r in enumerate(rewards) if uid[j] == uid[i] and j != i]
        found.append(reward - (sum(others) / len(others) if others else 0.0))
    return found


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, 0.25, 1.0, -2.0])), min_size=1, max_size=8))
def test_like_plain_python(outcomes, rows, data):
    uid, rewards = zip(*data, strict=True)
    inputs = outcomes(rewards, uid)
    assert rows(rloo(inputs, None)[0], inputs) == pytest.approx(_slow(rewards, uid), abs=1e-12)
