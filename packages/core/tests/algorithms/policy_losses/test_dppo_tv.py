import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.policy_losses.dppo_tv import dppo_tv
from rl_core.errors import ConfigError


def logs(*probabilities):
    return [math.log(p) for p in probabilities]


def test_probabilities_are_bounded_not_ratios(inputs, actor):
    # A rare token may become ten times as likely; a frequent one may not gain 0.3.
    new, old = logs(0.1, 0.8, 0.2), logs(0.01, 0.5, 0.5)
    x = torch.tensor([new], dtype=torch.float64, requires_grad=True)
    found = dppo_tv(inputs(x, old, [1.0, 1.0, 1.0]), actor(clip_ratio_c=20.0))
    assert found.token_loss[0].tolist() == pytest.approx([-10 * new[0], 0.0, -0.4 * new[2]])
    assert found.metrics["pg_clipfrac"].values[0].tolist() == [False, True, False]
    found.token_loss.sum().backward()
    assert x.grad[0].tolist() == pytest.approx([-10.0, 0.0, -0.4]), "the ratio weighs, and has no gradient of its own"


def test_a_negative_advantage_is_bounded_from_below(inputs, actor):
    new, old = logs(0.2, 0.9), logs(0.5, 0.1)
    found = dppo_tv(inputs(new, old, [-1.0, -1.0]), actor(clip_ratio_c=20.0))
    assert found.token_loss[0].tolist() == pytest.approx([0.0, 9 * new[1]])


def test_the_cap_bounds_the_weight(inputs, actor):
    x = torch.tensor([logs(0.1)], dtype=torch.float64, requires_grad=True)
    found = dppo_tv(inputs(x, logs(0.01), [1.0]), actor())
    found.token_loss.sum().backward()
    assert x.grad.item() == pytest.approx(-3.0)
    assert found.metrics["pg_clipfrac_lower"].values.all()
    assert not found.metrics["pg_clipfrac"].values.any()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), low=st.floats(0, 1), high=st.floats(0, 1), cap=st.floats(1.1, 5))
def test_like_plain_python(seed, low, high, cap, same_as_slow, actor):
    def slow(row):
        losses = []
        for new, old, a, w in zip(row.log_prob, row.old_log_prob, row.advantages, row.weights, strict=True):
            moved = math.exp(new) - math.exp(old)
            allowed = moved <= high if a > 0 else moved >= -low
            losses.append(-w * a * min(math.exp(new - old), cap) * new if allowed else 0.0)
        return losses

    same_as_slow(dppo_tv, actor(clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=cap), slow, seed)


@pytest.mark.parametrize("changes", [{"clip_ratio_c": 1.0}, {"clip_ratio_high": -0.1}])
def test_bounds_that_cannot_work_are_refused(changes, inputs, actor):
    with pytest.raises(ConfigError, match=next(iter(changes))):
        dppo_tv(inputs([-1.0], [-1.0], [1.0]), actor(**changes))
