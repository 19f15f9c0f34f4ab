import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms import kl
from rl_core.algorithms.kl import apply_kl_to_rewards, kl_penalty, straight_through
from rl_core.errors import ConfigError, ShapeError

NAN = float("nan")
NAMES = ["kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"]
ALL_NAMES = [*NAMES, *(name + "+" for name in NAMES)]


def _one(value, dtype=torch.float32, **kwargs):
    return torch.tensor([[value]], dtype=dtype, **kwargs)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("k1", 0.2),
        ("kl", 0.2),
        ("abs", 0.2),
        ("k1_abs", 0.2),
        ("k2", 0.02),
        ("mse", 0.02),
        ("k3", 0.018730753),
        ("low_var_kl", 0.018730753),
    ],
)
@pytest.mark.parametrize("suffix", ["", "+"])
def test_b25_a_normal_token(name, expected, suffix):
    assert kl_penalty(_one(-1.0), _one(-1.2), name + suffix).item() == pytest.approx(expected, abs=1e-7)


def test_sign_of_k1_and_distance():
    assert kl_penalty(_one(-1.2), _one(-1.0), "k1").item() == pytest.approx(-0.2)
    assert kl_penalty(_one(-1.2), _one(-1.0), "abs").item() == pytest.approx(0.2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ALL_NAMES)
@pytest.mark.parametrize(("log_prob", "ref"), [(-120.0, -2.0), (-2.0, -120.0), (-2.0, -2000.0), (-2000.0, -2.0)])
def test_b25_an_extreme_token_has_a_finite_value_and_gradient(dtype, name, log_prob, ref):
    x = _one(log_prob, dtype, requires_grad=True)
    value = kl_penalty(x, _one(ref, dtype), name)
    value.sum().backward()
    assert math.isfinite(value.item())
    assert math.isfinite(x.grad.item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_b25_k3_of_the_reported_token_is_capped_with_gradient_zero(dtype):
    x = _one(-120.0, dtype, requires_grad=True)
    value = kl_penalty(x, _one(-2.0, dtype), "k3")
    value.sum().backward()
    assert value.item() == 10.0
    assert x.grad.item() == 0.0


def test_half_precision_is_subtracted_in_float32():
    # bfloat16 has no number between 118 and 118.5; the difference below survives only in float32.
    value = kl_penalty(_one(-118.0, torch.bfloat16), _one(-1.0078125, torch.bfloat16), "k1")
    assert value.dtype == torch.float32
    assert value.item() == -116.9921875


@settings(deadline=None, max_examples=200)
@given(log_prob=st.floats(-200, 0, width=32), ref=st.floats(-200, 0, width=32))
def test_b25_k3_is_never_negative_and_its_gradient_is_finite(log_prob, ref):
    x = _one(log_prob, requires_grad=True)
    value = kl_penalty(x, _one(ref), "k3")
    value.sum().backward()
    assert 0.0 <= value.item() <= 10.0
    assert math.isfinite(x.grad.item())


def test_k1_and_k3_average_to_the_kl_and_k2_to_its_gradient():
    # Over a whole distribution the average over samples is an exact sum, so nothing is left to chance.
    torch.manual_seed(0)
    logits = torch.randn(1, 6, dtype=torch.float64, requires_grad=True)
    log_p = logits.log_softmax(-1)
    log_q = torch.randn(1, 6, dtype=torch.float64).log_softmax(-1)
    exact = (log_p.exp() * (log_p - log_q)).sum()
    weight = log_p.exp().detach()
    for name in ("k1", "k3"):
        assert (weight * kl_penalty(log_p, log_q, name)).sum().item() == pytest.approx(exact.item(), abs=1e-12)
    (expected,) = torch.autograd.grad(exact, logits, retain_graph=True)
    for name in ("k2", "k1+", "k3+", "abs+"):
        (gradient,) = torch.autograd.grad((weight * kl_penalty(log_p, log_q, name)).sum(), logits, retain_graph=True)
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["k1", "abs", "k2", "k3"])
def test_gradcheck(name):
    log_prob = torch.tensor([[-1.0, -0.3, -4.0]], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([[-1.5, -0.1, -2.5]], dtype=torch.float64)
    torch.autograd.gradcheck(lambda x: kl_penalty(x, ref, name), log_prob)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_no_gradient_reaches_the_reference(name):
    log_prob, ref = _one(-1.0, requires_grad=True), _one(-1.2, requires_grad=True)
    kl_penalty(log_prob, ref, name).sum().backward()
    assert ref.grad is None
    assert log_prob.grad is not None


def test_straight_through_keeps_the_value_and_takes_the_gradient_of_k2():
    x = _one(-1.0, torch.float64, requires_grad=True)
    value = straight_through(kl.k3)(x, _one(-1.5, torch.float64))
    value.sum().backward()
    assert value.item() == pytest.approx(math.exp(-0.5) + 0.5 - 1, abs=1e-12)
    assert x.grad.item() == pytest.approx(0.5)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_half_precision_gives_the_numbers_of_float32_and_its_gradient_in_half_precision(name):
    log_prob = torch.tensor([[-1.0, -0.5, -30.0, -0.25]], dtype=torch.bfloat16, requires_grad=True)
    ref = torch.tensor([[-1.5, -0.25, -2.0, -0.25]], dtype=torch.bfloat16)
    value = kl_penalty(log_prob, ref, name)
    wide = log_prob.detach().float().requires_grad_()
    expected = kl_penalty(wide, ref.float(), name)
    assert value.dtype == torch.float32
    assert torch.equal(value, expected)
    value.sum().backward()
    expected.sum().backward()
    assert torch.equal(log_prob.grad, wide.grad.bfloat16())


def test_a_function_stands_for_itself():
    assert kl_penalty(_one(-1.0), _one(-3.0), lambda p, q: 3 * (p - q)).item() == 6.0


@pytest.mark.parametrize("name", ["k4", "k3++", "+", ""])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(ConfigError, match="low_var_kl"):
        kl_penalty(_one(-1.0), _one(-1.0), name)


def test_shapes_that_differ_are_refused_with_both():
    with pytest.raises(ShapeError, match=r"ref_log_prob \(1, 2\).*log_prob \(1, 1\)"):
        kl_penalty(_one(-1.0), torch.zeros(1, 2), "k1")


SCORES = torch.tensor([[0.0, 0.0, 1.0]])
LOG_PROB = torch.tensor([[-1.0, -2.0, -3.0]])
REF = LOG_PROB - 0.1
FULL = torch.ones(1, 3, dtype=torch.bool)


def test_b27_kl_in_the_reward():
    rewards, mean_kl = apply_kl_to_rewards(SCORES, LOG_PROB, REF, FULL, 0.1, "k1")
    assert rewards[0].tolist() == pytest.approx([-0.01, -0.01, 0.99], abs=1e-6)
    assert rewards.sum().item() == pytest.approx(0.97, abs=1e-6)
    assert mean_kl == pytest.approx(0.1, abs=1e-6)


def test_b27_kl_in_the_loss_only():
    rewards, _ = apply_kl_to_rewards(SCORES, LOG_PROB, REF, FULL, 0.0, "k1")
    assert rewards.tolist() == [[0.0, 0.0, 1.0]]
    assert 0.1 * kl_penalty(LOG_PROB, REF, "k1").mean().item() == pytest.approx(0.01, abs=1e-6)


def test_the_mean_is_over_sequences_that_have_tokens():
    mask = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    log_prob = torch.tensor([[0.1, 0.3, NAN], [0.6, NAN, NAN], [NAN, NAN, NAN]])
    rewards, mean_kl = apply_kl_to_rewards(torch.zeros(3, 3), log_prob, torch.zeros(3, 3), mask, 1.0, "k1")
    assert mean_kl == pytest.approx((0.2 + 0.6) / 2)
    torch.testing.assert_close(rewards, torch.tensor([[-0.1, -0.3, 0.0], [-0.6, 0.0, 0.0], [0.0, 0.0, 0.0]]))


def test_no_token_at_all_has_kl_zero():
    _, mean_kl = apply_kl_to_rewards(SCORES, LOG_PROB, REF, ~FULL, 0.1, "k3")
    assert mean_kl == 0.0


def test_b33_a_missing_reward_stays_missing():
    scores = torch.tensor([[0.0, 0.0, NAN]])
    rewards, mean_kl = apply_kl_to_rewards(scores, LOG_PROB, REF, FULL, 0.1, "k1")
    assert rewards.isnan().tolist() == [[False, False, True]]
    assert mean_kl == pytest.approx(0.1, abs=1e-6)


def test_scores_are_not_written_to_and_rewards_carry_no_gradient():
    scores, log_prob = SCORES.clone(), LOG_PROB.clone().requires_grad_()
    rewards, _ = apply_kl_to_rewards(scores, log_prob, REF, FULL, 0.1, "k1")
    assert torch.equal(scores, SCORES)
    assert not rewards.requires_grad


@pytest.mark.parametrize("coef", [-0.1, NAN])
def test_a_coefficient_below_zero_is_refused(coef):
    with pytest.raises(ConfigError, match="kl_coef"):
        apply_kl_to_rewards(SCORES, LOG_PROB, REF, FULL, coef, "k1")


def test_reward_shapes_that_differ_are_refused():
    with pytest.raises(ShapeError, match=r"token_level_scores \(1, 2\).*mask \(1, 3\)"):
        apply_kl_to_rewards(SCORES[:, :2], LOG_PROB, REF, FULL, 0.1, "k1")
    with pytest.raises(ShapeError, match=r"log_prob \(1, 2\).*mask \(1, 3\)"):
        apply_kl_to_rewards(SCORES, LOG_PROB[:, :2], REF[:, :2], FULL, 0.1, "k1")
