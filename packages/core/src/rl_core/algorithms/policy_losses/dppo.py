"""What the two divergence-bounded losses share: the gradient of the tokens that are within the trust region."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.inputs import PolicyLossOutputs, TokenMetric
from rl_core.algorithms.policy_losses import ratio as shared

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import PolicyLossInputs


def within_trust_region(inputs: PolicyLossInputs, is_within: Tensor, cap: float) -> PolicyLossOutputs:
    """``-A * sg(min(ratio, cap)) * log_prob`` of the tokens that may move on, 0 for the others.

    Args:
        inputs: one shard; ``rollout_is_weights`` multiply the loss.
        is_within: [B, T] bool, False where the token has left the trust region in the direction of its advantage.
        cap: the largest ratio that weighs a token.

    Returns:
        The loss of each token, and per token: ``pg_clipfrac`` (outside), ``pg_clipfrac_lower`` (inside, the ratio
        capped), ``ppo_kl`` (old log-prob minus new).
    """
    log_ratio = shared.log_ratio(inputs)
    ratio = log_ratio.detach().exp()
    surrogate = -shared.advantages(inputs) * ratio.clamp(max=cap) * shared.log_prob(inputs)
    metrics = {
        "pg_clipfrac": TokenMetric(~is_within),
        "pg_clipfrac_lower": TokenMetric(is_within & (ratio > cap)),
        "ppo_kl": shared.ppo_kl(log_ratio),
    }
    return PolicyLossOutputs(shared.weighted(torch.where(is_within, surrogate, 0.0), inputs), metrics)
