import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.policy_losses.gpg import gpg


def test_minus_advantage_times_log_prob(inputs, actor):
    x = torch.tensor([[-0.5, -2.0]], dtype=torch.float64, requires_grad=True)
    found = gpg(inputs(x, [-9.0, 0.0], [2.0, -3.0]), actor())
    assert found.token_loss[0].tolist() == pytest.approx([1.0, -6.0])
    found.token_loss.sum().backward()
    assert x.grad[0].tolist() == [-2.0, 3.0], "whatever the old log-probs are"


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31))
def test_like_plain_python(seed, same_as_slow, actor):
    def slow(row):
        return [-w * a * p for w, a, p in zip(row.weights, row.advantages, row.log_prob, strict=True)]

    same_as_slow(gpg, actor(), slow, seed)
