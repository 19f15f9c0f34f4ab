"""Importance weights: what a token that the generator drew counts for the policy in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import torch

from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.rollout_correction.ratios import row_means, row_sums

if TYPE_CHECKING:
    from torch import Tensor

Level = Literal["token", "sequence"]


class Bounds(Protocol):
    """Bounds of a ratio."""

    @property
    def lower(self) -> float | None:
        """A weight below this, or above ``upper``, becomes 0 (IcePop); None cuts weights at ``upper`` instead (TIS)."""
        ...

    @property
    def upper(self) -> float:
        """Largest weight."""
        ...


@dataclass(frozen=True, eq=False)
class ImportanceWeights:
    """The weights of a batch.

    Attributes:
        ratio: [B, T] float64, trainer's over generator's probability, of the token or of its whole response.
        weights: [B, T] float64, the ratio within its bounds. Both are 0.0 where masked and carry no gradient.
    """

    ratio: Tensor
    weights: Tensor


@torch.no_grad()
def importance_weights(log_ratio: Tensor, mask: Tensor, level: Level, bounds: Bounds) -> ImportanceWeights:
    """Weights from log-ratios.

    ``w = min(r, upper)``, or ``w = r if lower <= r <= upper else 0``. At level "token" r is the token's own ratio, which
    leaves out how likely the trainer holds what stands before it (biased, little variance); at level "sequence" it is the
    product over the response, the same for all its tokens (unbiased before the cut, high variance).

    Args:
        log_ratio: [B, T] float64, of ``log_ratios``.
        mask: [B, T] bool.
        level: what a ratio belongs to.
        bounds: of the ratio.

    Returns:
        Exactly 1 where trainer and generator agree; never infinite.

    Raises:
        ShapeError: shapes differ.

    Source: truncation: Ionides 2008, "Truncated Importance Sampling", eq. 3; both bounds: Ling Team 2025, IcePop, in
        arXiv:2510.18855, section 3.2.
    """
    logs = log_ratio if level == "token" else row_sums(log_ratio, mask).unsqueeze(1).expand(mask.shape)
    ratio = fill_masked(logs.exp(), mask)
    if bounds.lower is None:
        return ImportanceWeights(ratio, ratio.clamp(max=bounds.upper))
    inside = (ratio >= bounds.lower) & (ratio <= bounds.upper)
    return ImportanceWeights(ratio, fill_masked(ratio, inside))


@torch.no_grad()
def batch_normalize(weights: Tensor, trained: Tensor, level: Level) -> tuple[Tensor, float]:
    """Scale weights to mean 1 over what is trained.

    Args:
        weights: [B, T] float64 of the whole batch, never of a shard.
        trained: [B, T] bool, tokens that reach the loss; a rejected token does not.
        level: "token" averages over tokens, "sequence" over responses, however long.

    Returns:
        The scaled weights, and the mean they were divided by: 1.0 where nothing is trained or every weight is 0.

    Raises:
        ShapeError: shapes differ.
    """
    kept = weights[trained] if level == "token" else row_means(weights, trained)[trained.any(dim=1)]
    mean = float(kept.mean()) if kept.numel() else 0.0
    if mean <= 0.0:
        return weights, 1.0
    return weights / mean, mean
