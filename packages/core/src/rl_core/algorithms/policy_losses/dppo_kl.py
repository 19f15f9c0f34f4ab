"""Divergence proximal policy optimization, bounded by the KL divergence of one token against all others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.policy_losses import ratio as shared
from rl_core.algorithms.policy_losses.dppo import within_trust_region
from rl_core.algorithms.precision import widen

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import PolicyLossInputs, PolicyLossOutputs


def dppo_kl(inputs: PolicyLossInputs, config: shared.CappedClipConfig) -> PolicyLossOutputs:
    """Policy gradient of the tokens that are within the trust region, or on their way back.

    ``-A * sg(min(ratio, c)) * log_prob`` where ``kl <= high or p <= p_old`` (A > 0), ``kl <= low or p >= p_old``
    (otherwise), 0 elsewhere; ``kl = p_old * log(p_old / p) + (1 - p_old) * log((1 - p_old) / (1 - p))``, p the token's
    probability, sg the value without its gradient.

    Args:
        inputs: one shard; ``rollout_is_weights`` multiply the loss. No gradient flows but through ``log_prob``.
        config: ``clip_ratio*`` bound the divergence in nats, not the ratio: useful values are far below 0.2.
            ``clip_ratio_c`` caps the weight, and the authors' own runs leave it wide, at 20.

    Returns:
        See ``within_trust_region``.

    Raises:
        ConfigError: a bound is negative, or ``clip_ratio_c`` is not above 1.

    Source: Qi et al. 2026, arXiv:2602.04879, the binary KL divergence; the cap is that of its implementation.
    """
    low, high = shared.clip_bounds(config)
    log_prob = shared.log_prob(inputs).detach()
    old_log_prob = fill_masked(widen(inputs.old_log_prob.detach()), inputs.response_mask)
    divergence = binary_kl(old_log_prob, log_prob)
    rising_ok = (divergence <= high) | (log_prob <= old_log_prob)
    falling_ok = (divergence <= low) | (log_prob >= old_log_prob)
    is_within = torch.where(shared.advantages(inputs) > 0, rising_ok, falling_ok)
    return within_trust_region(inputs, is_within, shared.ratio_cap(config))


def binary_kl(old_log_prob: Tensor, log_prob: Tensor) -> Tensor:
    """KL divergence of "this token or another one", from the old to the new probability.

    Args:
        old_log_prob: [B, T] float32 or float64; what rounding puts above 0 counts as 0.
        log_prob: [B, T], likewise.

    Returns:
        [B, T], never negative but for rounding; infinite where the new probability is 1 and the old one is not.
    """
    old, new = old_log_prob.clamp(max=0.0), log_prob.clamp(max=0.0)
    p_old = old.exp()
    others = -torch.expm1(old)
    of_others = torch.where(others > 0, others * (_log_complement(old) - _log_complement(new)), 0.0)
    return p_old * (old - new) + of_others


def _log_complement(log_p: Tensor) -> Tensor:
    """``log(1 - exp(log_p))``, without cancellation at either end."""
    return torch.where(log_p > -math.log(2.0), (-torch.expm1(log_p)).log(), torch.log1p(-log_p.exp()))
