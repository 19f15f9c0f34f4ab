import math
from types import SimpleNamespace

import pytest
import torch
from rl_core.algorithms.inputs import LossTotals, PolicyLossInputs
from rl_core.algorithms.policy_losses.vanilla import vanilla
from rl_core.algorithms.rollout_correction.bypass import bypass_loss
from rl_core.errors import DataError

NAN = float("nan")
CLIP = SimpleNamespace(clip_ratio=0.2, clip_ratio_low=None, clip_ratio_high=None, clip_ratio_c=3.0)
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


def settings(loss_type, level=None, upper=2.0, lower=None, *rules):
    return SimpleNamespace(
        loss_type=loss_type, level=level, bounds=SimpleNamespace(lower=lower, upper=upper), rules=rules
    )


def inputs(log_prob, generator, advantages, mask=MASK, totals=None, **more):
    totals = LossTotals.of(mask, 4) if totals is None else totals
    keys = {"old_log_prob": generator, "rollout_log_prob": generator} | more
    return PolicyLossInputs(log_prob=log_prob, advantages=advantages, response_mask=mask, totals=totals, **keys)


def clipped(changed):
    return vanilla(changed, CLIP)


LOG_PROB = torch.tensor([[0.8, 0.1, NAN], [0.3, NAN, NAN], [NAN, NAN, NAN]]).log()
GENERATOR = torch.tensor([[0.2, 0.2, NAN], [0.2, NAN, NAN], [NAN, NAN, NAN]]).log()
ADVANTAGES = torch.tensor([[1.0, -2.0, NAN], [3.0, NAN, NAN], [NAN, NAN, NAN]])


def test_ppo_clip_is_the_configured_loss_against_the_generator():
    given = inputs(LOG_PROB, GENERATOR, ADVANTAGES, rollout_is_weights=torch.full((3, 3), 7.0))
    outputs, shares = bypass_loss(given, settings("ppo_clip", "token"), clipped)
    # Ratios 4, 0.5 | 1.5, clipped to 1.2, 0.8 | 1.2; no weight multiplies them.
    assert outputs.token_loss.flatten().tolist() == pytest.approx([-1.2, 1.6, 0, -3.6, 0, 0, 0, 0, 0])
    assert "rollout_is_mean" not in shares
    assert shares["kl"][0].item() == pytest.approx(-math.log(4 * 0.5 * 1.5) / 3)


def test_reinforce_weighs_by_the_detached_cut_ratio():
    x = LOG_PROB.clone().requires_grad_()
    outputs, shares = bypass_loss(inputs(x, GENERATOR, ADVANTAGES), settings("reinforce", "token"), clipped)
    expected = [-2 * 1 * math.log(0.8), 0.5 * 2 * math.log(0.1), 0, -1.5 * 3 * math.log(0.3), 0, 0, 0, 0, 0]
    assert outputs.token_loss.flatten().tolist() == pytest.approx(expected)
    (gradient,) = torch.autograd.grad(outputs.token_loss.sum(), x)
    assert gradient.flatten().tolist() == pytest.approx([-2, 1, 0, -4.5, 0, 0, 0, 0, 0])
    assert shares["rollout_is_mean"][0].item() == pytest.approx((2 + 0.5 + 1.5) / 3)


def test_reinforce_without_weights_and_with_sequence_weights():
    plain, _ = bypass_loss(inputs(LOG_PROB, GENERATOR, ADVANTAGES), settings("reinforce"), clipped)
    assert plain.token_loss[1, 0].item() == pytest.approx(-3 * math.log(0.3))
    whole, _ = bypass_loss(inputs(LOG_PROB, GENERATOR, ADVANTAGES), settings("reinforce", "sequence", 1.8), clipped)
    # The response's ratio 4 * 0.5 = 2 is cut at 1.8.
    assert whole.token_loss[0].tolist() == pytest.approx([-1.8 * math.log(0.8), 3.6 * math.log(0.1), 0])


@pytest.mark.parametrize("loss_type", ["ppo_clip", "reinforce"])
def test_rejected_tokens_have_no_loss_and_no_gradient(loss_type):
    rule = SimpleNamespace(scope="seq_sum", estimator="k1", lower=0.5, upper=1.9)
    x = LOG_PROB.clone().requires_grad_()
    outputs, shares = bypass_loss(
        inputs(x, GENERATOR, ADVANTAGES), settings(loss_type, "token", 2.0, None, rule), clipped
    )
    (gradient,) = torch.autograd.grad(outputs.token_loss.sum(), x)
    assert outputs.token_loss[0].tolist() == [0.0, 0.0, 0.0]
    assert gradient[0].tolist() == [0.0, 0.0, 0.0]
    assert outputs.token_loss[1, 0].item() != 0
    assert shares["rollout_rs_masked_fraction"][0].item() == pytest.approx(2 / 3)
    assert shares["rollout_rs_seq_masked_fraction"][0].item() == 0.5


@pytest.mark.parametrize("loss_type", ["ppo_clip", "reinforce"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_losses_and_gradients_do_not_depend_on_the_cut(loss_type, level):
    torch.manual_seed(0)
    mask = torch.rand(6, 5) < 0.7
    generator, advantages = -torch.rand(6, 5).double(), torch.randn(6, 5).double()
    x = (generator + torch.randn(6, 5)).requires_grad_()
    rule = SimpleNamespace(scope="seq_mean", estimator="k3", lower=None, upper=0.4)
    chosen, totals = settings(loss_type, level, 2.0, None, rule), LossTotals.of(mask, 5)

    def loss(rows):
        given = inputs(x[rows], generator[rows], advantages[rows], mask[rows], totals)
        return bypass_loss(given, chosen, clipped)[0].token_loss

    whole, cut = loss(slice(None)), torch.cat([loss(slice(0, 1)), loss(slice(1, 4)), loss(slice(4, 6))])
    assert torch.equal(whole, cut)
    gradients = [torch.autograd.grad(part.sum(), x, retain_graph=True)[0] for part in (whole, cut)]
    assert torch.equal(*gradients)
    assert whole.count_nonzero() not in (0, mask.sum())


@pytest.mark.parametrize("log_ratio", [118.0, -118.0, 5000.0])
@pytest.mark.parametrize("loss_type", ["ppo_clip", "reinforce"])
def test_b25_loss_and_gradient_are_finite_at_any_log_ratio(log_ratio, loss_type):
    x = torch.tensor([[log_ratio]], requires_grad=True)
    given = inputs(x, torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1).bool())
    outputs, _ = bypass_loss(given, settings(loss_type, "token"), clipped)
    outputs.token_loss.sum().backward()
    assert math.isfinite(outputs.token_loss.item())
    assert math.isfinite(x.grad.item())


def test_a_generator_without_log_probs_is_refused():
    given = inputs(LOG_PROB, GENERATOR, ADVANTAGES, rollout_log_prob=None)
    with pytest.raises(DataError, match="found no rollout_log_probs"):
        bypass_loss(given, settings("ppo_clip"), clipped)
