"""From token-level rewards to one reward a response, and which rewards are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.checks import require_mask, require_same_shape
from rl_core.algorithms.masks import fill_masked, masked_sum
from rl_core.algorithms.precision import widen

if TYPE_CHECKING:
    from torch import Tensor


def missing_rewards(token_level_rewards: Tensor, response_mask: Tensor) -> Tensor:
    """Tell which rows have no usable reward.

    A reward function that failed or abstained leaves NaN at a masked-in position. Estimators give such rows advantage
    0 and keep them out of every statistic; the caller counts them and takes them out of the loss's mask.

    Args:
        token_level_rewards: [B, T] float.
        response_mask: [B, T] bool.

    Returns:
        [B] bool, True where a masked-in reward is NaN or infinite. A fully masked row is not missing.

    Raises:
        ShapeError: shapes differ, or the mask is not bool of rank 2.
    """
    require_mask(response_mask)
    require_same_shape("token_level_rewards", token_level_rewards, "response_mask", response_mask)
    return (~torch.isfinite(token_level_rewards) & response_mask).any(dim=1)


def sequence_rewards(token_level_rewards: Tensor, response_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the rewards of each response.

    Args:
        token_level_rewards: [B, T] float.
        response_mask: [B, T] bool.

    Returns:
        rewards [B] float32 or float64, 0.0 where unusable; usable [B] bool: the row has a masked-in token and its
        reward is not missing. Only usable rows may enter a group's mean or spread.

    Raises:
        ShapeError: shapes differ, or the mask is not bool of rank 2.
    """
    usable = response_mask.any(dim=1) & ~missing_rewards(token_level_rewards, response_mask)
    return fill_masked(masked_sum(widen(token_level_rewards), response_mask, dim=1), usable), usable
