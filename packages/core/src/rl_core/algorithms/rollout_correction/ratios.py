"""The log-ratio between trainer and generator, and what it says about whole responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.algorithms.masks import fill_masked, masked_mean, masked_sum
from rl_core.algorithms.policy_losses.ratio import LOG_RATIO_LIMIT

if TYPE_CHECKING:
    from torch import Tensor


def log_ratios(log_prob: Tensor, rollout_log_prob: Tensor, mask: Tensor) -> Tensor:
    """Log of trainer's over generator's probability of each token.

    Args:
        log_prob: [B, T] float, under the policy in training.
        rollout_log_prob: [B, T] float, under the policy that drew the token.
        mask: [B, T] bool.

    Returns:
        [B, T] float64 without gradient, in +-20: exactly 0 where both are equal and where masked. An infinite log-prob
        counts as the bound; NaN stays NaN.

    Raises:
        ShapeError: shapes differ.
    """
    trainer = fill_masked(log_prob.detach(), mask).double()
    generator = fill_masked(rollout_log_prob.detach(), mask).double()
    return (trainer - generator).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def row_sums(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Log of the ratio of whole responses: [B], in +-20, 0 for a row without tokens."""
    return masked_sum(log_ratio, mask, dim=1).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def row_means(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over each row's tokens: [B], 0 for a row without tokens."""
    return masked_mean(values, mask, dim=1)
