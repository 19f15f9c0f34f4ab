import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.policy_losses.sapo import sapo
from rl_core.errors import ConfigError


def test_the_gate_at_hand_computed_points(inputs, actor):
    # sigmoid(0) = 1/2, so the gate at ratio 1 is 2 / tau; sigmoid(ln 3) = 3/4, reached at ratio 1 + ln 3 for tau 1.
    new = [0.0, 0.0, math.log(1 + math.log(3))]
    found = sapo(inputs(new, [0.0] * 3, [1.0, -1.0, 2.0]), actor(tau_neg=2.0))
    assert found.token_loss[0].tolist() == pytest.approx([-2.0, 1.0, -6.0])


def test_a_zero_advantage_takes_the_negative_temperature_and_has_no_loss(inputs, actor):
    assert sapo(inputs([0.7], [0.0], [0.0]), actor()).token_loss.item() == 0.0


def test_the_gradient_fades_on_both_sides(inputs, actor):
    x = torch.log(torch.tensor([[0.05, 1.0, 8.0]], dtype=torch.float64)).requires_grad_()
    sapo(inputs(x, [0.0] * 3, [1.0] * 3), actor()).token_loss.sum().backward()
    low, middle, high = x.grad[0].tolist()
    assert middle == pytest.approx(-1.0)
    assert -0.2 < low < 0
    assert -0.05 < high < 0


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), tau_pos=st.floats(0.1, 5), tau_neg=st.floats(0.1, 5))
def test_like_plain_python(seed, tau_pos, tau_neg, same_as_slow, actor):
    def slow(row):
        losses = []
        for ratio, advantage, weight in zip(row.ratio, row.advantages, row.weights, strict=True):
            tau = tau_pos if advantage > 0 else tau_neg
            losses.append(-weight * advantage * 4 / tau / (1 + math.exp(-tau * (ratio - 1))))
        return losses

    same_as_slow(sapo, actor(tau_pos=tau_pos, tau_neg=tau_neg), slow, seed)


@pytest.mark.parametrize("changes", [{"tau_pos": 0.0}, {"tau_neg": -1.0}, {"tau_pos": float("nan")}])
def test_temperatures_that_cannot_work_are_refused(changes, inputs, actor):
    with pytest.raises(ConfigError, match="tau_pos and tau_neg above 0"):
        sapo(inputs([0.0], [0.0], [1.0]), actor(**changes))
