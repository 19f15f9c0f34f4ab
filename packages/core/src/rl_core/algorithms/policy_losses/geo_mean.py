"""Geometric-mean policy optimization: the geometric mean of a response's ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.inputs import PolicyLossOutputs, TokenMetric
from rl_core.algorithms.masks import fill_masked, masked_mean
from rl_core.algorithms.policy_losses import ratio as shared
from rl_core.algorithms.precision import widen

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import PolicyLossInputs


def geo_mean(inputs: PolicyLossInputs, config: shared.ClipConfig) -> PolicyLossOutputs:
    """Loss of each response, the same at each of its tokens.

    ``-mean(A) * exp(mean over the row's tokens of c_t)``, where c_t is the token's log-ratio, bounded from above by
    ``high`` where A_t > 0 and from below by ``-low`` where A_t < 0 (0 where A_t = 0). The mean over tokens of a constant
    is that constant: aggregated by ``seq-mean-token-mean`` it is the paper's mean over responses.

    Args:
        inputs: one shard of whole rows. The geometric mean of a row's ``rollout_is_weights`` multiplies its loss: a weight
            of 0 takes the row out. No gradient flows but through ``log_prob``.
        config: bounds of the *log*-ratio. The paper's are wider than PPO's: 0.4 on both sides.

    Returns:
        The loss of each token, and per token: ``pg_clipfrac`` (A > 0 and bounded), ``pg_clipfrac_lower`` (A < 0 and
        bounded), ``ppo_kl`` (old log-prob minus new).

    Raises:
        ConfigError: a bound is negative.

    Source: Zhao et al. 2025, arXiv:2507.20673, the objective with token-level clipping.
    """
    low, high = shared.clip_bounds(config)
    mask = inputs.response_mask
    log_ratio = shared.log_ratio(inputs)
    advantages = shared.advantages(inputs)
    sign = advantages.sign()
    bounded = sign * torch.minimum(sign * log_ratio, sign * log_ratio.clamp(-low, high))

    row_loss = -masked_mean(advantages, mask, dim=1) * masked_mean(bounded, mask, dim=1).exp()
    if inputs.rollout_is_weights is not None:
        row_loss = row_loss * _geometric_mean(inputs.rollout_is_weights.detach(), mask)
    token_loss = fill_masked(row_loss[:, None].expand_as(log_ratio), mask)
    is_bounded = (bounded != log_ratio).detach()
    metrics = {
        "pg_clipfrac": TokenMetric(is_bounded & (advantages > 0)),
        "pg_clipfrac_lower": TokenMetric(is_bounded & (advantages < 0)),
        "ppo_kl": shared.ppo_kl(log_ratio),
    }
    return PolicyLossOutputs(token_loss, metrics)


def _geometric_mean(weights: Tensor, mask: Tensor) -> Tensor:
    """Geometric mean of each row, [B]; 0 where a masked-in weight is 0."""
    return masked_mean(fill_masked(widen(weights), mask, 1.0).log(), mask, dim=1).exp()
