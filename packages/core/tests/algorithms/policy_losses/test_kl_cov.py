import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.inputs import PrepareInputs
from rl_core.algorithms.policy_losses.kl_cov import choose_kl_cov, kl_cov
from rl_core.errors import DataError


def step(old_log_prob, advantages, mask=None):
    old_log_prob, advantages = torch.tensor(old_log_prob), torch.tensor(advantages)
    mask = torch.ones(old_log_prob.shape, dtype=torch.bool) if mask is None else torch.tensor(mask)
    return PrepareInputs(old_log_prob=old_log_prob, advantages=advantages, response_mask=mask, seed=(0,))


def test_the_chosen_tokens_pay_for_moving_either_way(inputs, actor):
    x = torch.tensor([[0.1, 0.5, -0.5]], dtype=torch.float64, requires_grad=True)
    shard = inputs(x, [0.0] * 3, [1.0, 1.0, -1.0], prepared=torch.tensor([[False, True, True]]))
    found = kl_cov(shard, actor(ppo_kl_coef=0.3))
    assert found.token_loss[0].tolist() == pytest.approx([-math.exp(0.1), -math.exp(0.5) + 0.15, math.exp(-0.5) + 0.15])
    assert found.metrics["kl_cov_frac"].values[0].tolist() == [False, True, True]
    found.token_loss.sum().backward()
    assert x.grad[0].tolist() == pytest.approx([-math.exp(0.1), -math.exp(0.5) + 0.3, math.exp(-0.5) - 0.3])


def test_at_ratio_one_the_penalty_has_no_gradient(inputs, actor):
    x = torch.tensor([[-0.4]], dtype=torch.float64, requires_grad=True)
    kl_cov(inputs(x, [-0.4], [0.0], prepared=torch.ones(1, 1)), actor(ppo_kl_coef=5.0)).token_loss.sum().backward()
    assert x.grad.item() == 0.0


def test_the_largest_covariances_are_chosen(actor):
    values = [[3.0, -2.0, 1.0, -1.0, -1.0]]
    # Means 0: the covariances are 9, 4, 1, 1, 1. Of the equal ones the first is taken.
    assert choose_kl_cov(step(values, values), actor(kl_cov_ratio=0.5))[0].tolist() == [True, True, False, False, False]
    assert choose_kl_cov(step(values, values), actor(kl_cov_ratio=0.6))[0].tolist() == [True, True, True, False, False]
    assert choose_kl_cov(step(values, values), actor(kl_cov_ratio=1e-6)).sum() == 1
    assert not choose_kl_cov(step(values, values), actor(kl_cov_ratio=0.0)).any()


def test_no_covariance_has_to_be_positive_and_padding_is_never_chosen(actor):
    nan = math.nan
    batch = step([[1.0, -1.0, nan]], [[-1.0, 1.0, nan]], [[True, True, False]])
    assert choose_kl_cov(batch, actor(kl_cov_ratio=1.0))[0].tolist() == [True, True, False]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), coefficient=st.floats(0, 2))
def test_like_plain_python(seed, coefficient, same_as_slow, actor):
    def slow(row):
        columns = zip(row.ratio, row.log_ratio, row.advantages, row.weights, row.prepared, strict=True)
        return [w * (-a * r + (coefficient * abs(d) if chosen else 0.0)) for r, d, a, w, chosen in columns]

    same_as_slow(kl_cov, actor(ppo_kl_coef=coefficient), slow, seed)


def test_without_a_choice_it_is_refused(inputs, actor):
    with pytest.raises(DataError, match="kl_cov"):
        kl_cov(inputs([0.0], [0.0], [1.0]), actor())
