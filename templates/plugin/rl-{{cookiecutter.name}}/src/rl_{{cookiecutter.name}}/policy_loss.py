"""The unclipped surrogate loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from rl_core.algorithms.inputs import PolicyLossOutputs, TokenMetric

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import PolicyLossInputs

LOG_RATIO_LIMIT = 20.0


def unclipped(inputs: PolicyLossInputs, config: Any) -> PolicyLossOutputs:
    """Negative probability ratio times advantage, for each token.

    Args:
        inputs: one shard of the mini-batch, ``[B, T]`` tensors; the gradient flows through ``log_prob`` alone.
        config: the actor's section; not used.

    Returns:
        The loss of each token, 0.0 where masked, and ``{{cookiecutter.name}}_ratio``. Core adds the tokens up: a loss
        that divided by what it sees would depend on how the mini-batch was cut.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 6. Deviation: the log-ratio is clamped to +-20.
    """
    mask = inputs.response_mask
    # Masked before the exponential, so that what stands at padding reaches neither the loss nor the gradient.
    log_ratio = torch.where(mask, inputs.log_prob - inputs.old_log_prob.detach(), 0.0)
    ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    token_loss = torch.where(mask, -inputs.advantages.detach() * ratio, 0.0)
    return PolicyLossOutputs(token_loss, {"{{cookiecutter.name}}_ratio": TokenMetric(ratio.detach())})
