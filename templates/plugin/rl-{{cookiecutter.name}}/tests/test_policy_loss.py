from __future__ import annotations

import math

import torch
from rl_core.algorithms.inputs import LossTotals, PolicyLossInputs
from rl_{{cookiecutter.name}}.policy_loss import unclipped


def test_loss_and_gradient_of_each_token():
    log_prob = torch.tensor([[math.log(0.5), math.log(0.2), math.nan]], requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    inputs = PolicyLossInputs(
        log_prob=log_prob,
        old_log_prob=torch.tensor([[math.log(0.25), math.log(0.2), 0.0]]),
        advantages=torch.tensor([[1.0, -3.0, 7.0]]),
        response_mask=mask,
        totals=LossTotals.of(mask, max_response_length=3),
    )
    outputs = unclipped(inputs, config=None)
    torch.testing.assert_close(outputs.token_loss, torch.tensor([[-2.0, 3.0, 0.0]]))
    outputs.token_loss.sum().backward()
    torch.testing.assert_close(log_prob.grad, torch.tensor([[-2.0, 3.0, 0.0]]))
