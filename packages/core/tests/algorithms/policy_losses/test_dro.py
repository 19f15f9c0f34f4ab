import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.policy_losses.dro import dro
from rl_core.errors import ConfigError


def test_policy_gradient_and_squared_log_ratio(inputs, actor):
    x = torch.tensor([[-0.5, -2.0]], dtype=torch.float64, requires_grad=True)
    found = dro(inputs(x, [-1.0, -2.0], [2.0, -3.0]), actor(dro_beta=4.0))
    # 2 * 0.5 + 4 / 2 * 0.5 ** 2 = 1.5, and -3 * 2.
    assert found.token_loss[0].tolist() == pytest.approx([1.5, -6.0])
    found.token_loss.sum().backward()
    assert x.grad[0].tolist() == pytest.approx([-2.0 + 4.0 * 0.5, 3.0])


def test_the_gradient_is_that_of_the_papers_squared_error(inputs, actor):
    """d/dx of (A - beta * (x - old)) ** 2 / (2 * beta), the reward minus value being A."""
    old, beta = torch.tensor([[-1.2, -0.1, -3.0]], dtype=torch.float64), 0.7
    advantages = torch.tensor([[1.0, -2.0, 0.0]], dtype=torch.float64)
    x = torch.tensor([[-1.0, -0.4, -2.0]], dtype=torch.float64, requires_grad=True)
    ours = dro(inputs(x, old, advantages), actor(dro_beta=beta)).token_loss.sum()
    theirs = ((advantages - beta * (x - old)).square() / (2 * beta)).sum()
    gradients = [torch.autograd.grad(loss, x)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=1e-15)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), beta=st.floats(0.01, 10))
def test_like_plain_python(seed, beta, same_as_slow, actor):
    def slow(row):
        columns = zip(row.weights, row.advantages, row.log_prob, row.log_ratio, strict=True)
        return [w * (-a * p + beta / 2 * d**2) for w, a, p, d in columns]

    same_as_slow(dro, actor(dro_beta=beta), slow, seed)


@pytest.mark.parametrize("beta", [None, 0.0, -1.0, float("nan")])
def test_there_is_no_loss_without_beta(beta, inputs, actor):
    with pytest.raises(ConfigError, match=f"dro_beta above 0; found {beta}"):
        dro(inputs([0.0], [0.0], [1.0]), actor(dro_beta=beta))
