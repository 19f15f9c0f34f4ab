import math

import pytest
import torch
from rl_core.algorithms.inputs import LossTotals
from rl_core.contracts.engine import TokenOutputs
from rl_core.workers.losses import SFTLoss
from rl_dataproto import DataProto

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
