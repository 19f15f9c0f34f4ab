import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.aggregation import seq_mean_token_mean
from rl_core.algorithms.policy_losses.gspo import gspo
from rl_core.errors import ConfigError

WIDE = {"clip_ratio_low": 1.0, "clip_ratio_high": 9.0}


def logs(*ratios):
    return [math.log(r) for r in ratios]


def test_every_token_has_the_geometric_mean_of_the_ratios(inputs, actor):
    # Ratios 4 and 1: s = (4 * 1) ** (1 / 2) = 2.
    found = gspo(inputs(logs(4.0, 1.0), [0.0, 0.0], [1.0, -3.0]), actor(**WIDE))
    assert found.token_loss[0].tolist() == pytest.approx([-2.0, 6.0])


def test_the_ratio_of_the_response_is_clipped_not_that_of_a_token(inputs, actor):
    # s = 2 > 1.2: the positive advantage is clipped, although its own token did not move; the negative one is not.
    found = gspo(inputs(logs(1.0, 4.0), [0.0, 0.0], [1.0, -1.0]), actor())
    assert found.token_loss[0].tolist() == pytest.approx([-1.2, 2.0])
    assert found.metrics["pg_clipfrac"].values[0].tolist() == [True, False]


def test_each_token_has_a_gradient_of_its_own(inputs, actor):
    x = torch.tensor([logs(4.0, 1.0)], dtype=torch.float64, requires_grad=True)
    gspo(inputs(x, [0.0, 0.0], [1.0, -3.0]), actor(**WIDE)).token_loss.sum().backward()
    assert x.grad[0].tolist() == pytest.approx([-2.0, 6.0])


def test_with_one_advantage_a_row_it_is_the_loss_of_the_sequence(inputs, actor):
    """Equation 5 written down, gradient included: -A * s, s = exp(mean log-ratio), mean over two responses."""
    mask = torch.tensor([[True, True, True], [True, True, False]])
    old = torch.tensor([[-1.0, -2.0, -0.5], [-0.3, -1.1, 0.0]], dtype=torch.float64)
    x = (old + torch.tensor([[0.1, -0.2, 0.05], [0.3, 0.1, 7.0]])).requires_grad_()
    advantages = torch.tensor([[0.7] * 3, [-1.3] * 3], dtype=torch.float64)
    shard = inputs(x, old, advantages, mask)
    ours = seq_mean_token_mean(gspo(shard, actor(**WIDE)).token_loss, mask, shard.totals)
    mean_log = torch.stack([(x - old)[0].mean(), (x - old)[1, :2].mean()])
    theirs = -(torch.tensor([0.7, -1.3], dtype=torch.float64) * mean_log.exp()).mean()
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-12)
    gradients = [torch.autograd.grad(loss, x)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=1e-15)


def _slow(low, high):
    def losses(row):
        if not row.ratio:
            return []
        s = math.exp(sum(row.log_ratio) / len(row.log_ratio))
        clipped = min(max(s, 1 - low), 1 + high)
        return [w * max(-a * s, -a * clipped) for a, w in zip(row.advantages, row.weights, strict=True)]

    return losses


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), low=st.floats(0, 1), high=st.floats(0, 1))
def test_like_plain_python(seed, low, high, same_as_slow, actor):
    same_as_slow(gspo, actor(clip_ratio_low=low, clip_ratio_high=high), _slow(low, high), seed)


def test_a_lower_bound_above_one_is_refused(inputs, actor):
    with pytest.raises(ConfigError, match="clip_ratio_low"):
        gspo(inputs([0.0], [0.0], [1.0]), actor(clip_ratio_low=2.0))
