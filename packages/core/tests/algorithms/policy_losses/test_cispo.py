import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.policy_losses.cispo import cispo
from rl_core.errors import ConfigError


def test_log_prob_times_the_clipped_ratio(inputs, actor):
    # Ratios 1.1, 2 and 0.5, clipped to [0.8, 1.2]; log-probs are those of 0.55, 0.8 and 0.2.
    new, old = [math.log(p) for p in (0.55, 0.8, 0.2)], [math.log(p) for p in (0.5, 0.4, 0.4)]
    x = torch.tensor([new], dtype=torch.float64, requires_grad=True)
    found = cispo(inputs(x, old, [2.0, 2.0, -1.0]), actor())
    assert found.token_loss[0].tolist() == pytest.approx([-2.2 * new[0], -2.4 * new[1], 0.8 * new[2]])
    assert found.metrics["pg_clipfrac"].values[0].tolist() == [False, True, True]
    found.token_loss.sum().backward()
    assert x.grad[0].tolist() == pytest.approx([-2.2, -2.4, 0.8]), "a clipped token keeps its gradient"


def test_a_low_bound_of_one_or_more_leaves_the_lower_side_open(inputs, actor):
    x = torch.tensor([[math.log(0.01)]], dtype=torch.float64, requires_grad=True)
    found = cispo(inputs(x, [0.0], [1.0]), actor(clip_ratio_low=10.0))
    found.token_loss.sum().backward()
    assert x.grad.item() == pytest.approx(-0.01)
    assert not found.metrics["pg_clipfrac"].values.any()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), low=st.floats(0, 3), high=st.floats(0, 2))
def test_like_plain_python(seed, low, high, same_as_slow, actor):
    def slow(row):
        columns = zip(row.ratio, row.advantages, row.log_prob, row.weights, strict=True)
        return [-w * min(max(r, 1 - low), 1 + high) * a * p for r, a, p, w in columns]

    same_as_slow(cispo, actor(clip_ratio_low=low, clip_ratio_high=high), slow, seed)


def test_a_negative_bound_is_refused(inputs, actor):
    with pytest.raises(ConfigError, match="clip_ratio_high"):
        cispo(inputs([0.0], [0.0], [1.0]), actor(clip_ratio_high=-1.0))
