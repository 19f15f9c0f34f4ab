import math

import pytest
import torch
from rl_core.algorithms.inputs import LossTotals
from rl_core.config.actor import ActorConfig
from rl_core.contracts.engine import TokenOutputs
from rl_core.metrics import merge_metrics, metric_values
from rl_core.plugins import get_registry
from rl_core.workers.losses import PolicyLoss, SFTLoss
from rl_dataproto import DataProto, to_jagged

PROBABILITIES = torch.tensor([[0.5, 0.25, 0.125], [0.1, 0.5, 0.9]], dtype=torch.float64)
MASK = torch.tensor([[True, False, True], [False, True, False]])


def share(rows, totals):
    log_probs = PROBABILITIES[rows].log().requires_grad_()
    loss, metrics = SFTLoss(totals)(TokenOutputs(response_mask=MASK[rows], log_probs=log_probs), DataProto())
    assert metrics == {}
    loss.backward()
    return float(loss.detach()), log_probs.grad


def test_the_mean_negative_log_likelihood_of_the_learned_tokens():
    # 0.5, 0.125 and 0.5 are learned: (log 2 + log 8 + log 2) / 3 = 5 log 2 / 3.
    loss, gradient = share([0, 1], LossTotals(num_tokens=3, num_sequences=2, max_response_length=4))
    assert loss == pytest.approx(5 * math.log(2) / 3, rel=1e-12)
    assert torch.equal(gradient, MASK.double() / -3)


def test_shares_add_up_however_the_rows_are_cut():
    totals = LossTotals(num_tokens=3, num_sequences=2, max_response_length=4)
    whole, gradient = share([0, 1], totals)
    (first, left), (second, right) = share([0], totals), share([1], totals)
    assert first + second == pytest.approx(whole, rel=1e-12)
    assert torch.equal(torch.cat([left, right]), gradient)
    assert share([], totals)[0] == 0.0


def test_an_engine_without_log_probs_is_at_fault():
    loss = SFTLoss(LossTotals(num_tokens=1, num_sequences=1, max_response_length=1))
    with pytest.raises(RuntimeError, match="did not return log_probs"):
        loss(TokenOutputs(response_mask=MASK), DataProto())


def policy_report(rows, totals, advantage=1.0):
    """Metrics of a policy loss over ``rows``, where the policy has moved from 0.5 everywhere to ``PROBABILITIES``."""
    log_probs, mask = PROBABILITIES[rows].log(), MASK[rows]
    old = torch.full_like(log_probs, math.log(0.5))
    widths = torch.full((len(rows),), 3)
    columns = {"old_log_probs": old, "advantages": torch.full_like(old, advantage)}
    batch = DataProto.from_dict(tensors={name: to_jagged(column, widths) for name, column in columns.items()})
    loss = PolicyLoss(ActorConfig(), totals, get_registry())
    return loss(TokenOutputs(response_mask=mask, log_probs=log_probs.requires_grad_()), batch)[1]


@pytest.mark.parametrize("cut", [[[0, 1]], [[0], [1]], [[1], [0]]])
def test_the_moments_of_the_ratio_add_up_over_any_cut(cut):
    # Ratios of the learned tokens: 1, 0.25 and 1.
    totals = LossTotals(num_tokens=3, num_sequences=2, max_response_length=4)
    values = metric_values(merge_metrics([policy_report(rows, totals) for rows in cut]))
    assert values["actor/ratio_mean"] == pytest.approx(2.25 / 3)
    assert values["actor/ratio_square_mean"] == pytest.approx((1 + 1 / 16 + 1) / 3)
    assert values["actor/ratio_max"] == pytest.approx(1.0)


def test_b94_a_nan_loss_is_reported_as_nan_and_counted():
    totals = LossTotals(num_tokens=3, num_sequences=2, max_response_length=4)
    values = metric_values(merge_metrics([policy_report([0], totals, math.nan), policy_report([1], totals)]))
    assert math.isnan(values["actor/pg_loss"])
    assert values["actor/pg_loss/nan_count"] == 1


def test_the_three_terms_of_the_policy_loss_by_hand():
    log_probs = torch.tensor([[0.5, 0.9, 0.25]], dtype=torch.float64).log()
    columns = {
        "old_log_probs": log_probs,
        "advantages": torch.tensor([[2.0, 7.0, -1.0]], dtype=torch.float64),
        "ref_log_prob": torch.full_like(log_probs, math.log(0.25)),
    }
    widths = torch.tensor([3])
    batch = DataProto.from_dict(tensors={name: to_jagged(column, widths) for name, column in columns.items()})
    config = ActorConfig(
        loss_agg_mode="seq-mean-token-sum-norm",
        loss_scale_factor=4.0,
        entropy_coeff=0.1,
        use_kl_loss=True,
        kl_loss_coef=0.5,
        kl_loss_type="kl",
    )
    outputs = TokenOutputs(
        response_mask=MASK[:1], log_probs=log_probs.clone().requires_grad_(), entropy=torch.tensor([[1.0, 9.0, 3.0]])
    )
    totals = LossTotals(num_tokens=2, num_sequences=1, max_response_length=100)
    loss, metrics = PolicyLoss(config, totals, get_registry())(outputs, batch)
    # -2 + 1, 1 + 3 and log 2 + 0 over the two learned tokens, each divided by 4.
    assert metrics["actor/pg_loss"].value == pytest.approx(-0.25)
    assert metrics["actor/entropy"].value == pytest.approx(1.0)
    assert metrics["actor/kl_loss"].value == pytest.approx(math.log(2) / 4)
    assert float(loss.detach()) == pytest.approx(-0.25 - 0.1 * 1.0 + 0.5 * math.log(2) / 4)
