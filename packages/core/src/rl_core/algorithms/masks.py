"""Reductions over the masked-in positions of a tensor.

A masked-out position is *replaced* (``torch.where``), never multiplied by zero: 0 * NaN is NaN, and padding may hold
anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.checks import require_mask, require_same_shape
from rl_core.algorithms.precision import widen

if TYPE_CHECKING:
    from torch import Tensor

WHITEN_EPS = 1e-8


def fill_masked(x: Tensor, mask: Tensor, value: float = 0.0) -> Tensor:
    """Replace every masked-out position by a constant, through which no gradient flows.

    Args:
        x: any shape.
        mask: same shape, bool, True where ``x`` is kept.
        value: what stands at the other positions.

    Returns:
        Same shape and dtype as ``x``.

    Raises:
        ShapeError: ``x`` and ``mask`` differ in shape.
    """
    require_same_shape("x", x, "mask", mask)
    return torch.where(mask, x, value)


def spread_over_mask(row_values: Tensor, mask: Tensor) -> Tensor:
    """Give every masked-in position of a row the row's value.

    Args:
        row_values: [B], one value a row.
        mask: [B, T] bool.

    Returns:
        [B, T], the dtype of ``row_values``, 0.0 where masked.

    Raises:
        ShapeError: there is not one value a row, or the mask is not bool of rank 2.
    """
    require_mask(mask, "mask")
    require_same_shape("row_values", row_values, "one column of the mask", mask.any(dim=1))
    return fill_masked(row_values.unsqueeze(1).expand(mask.shape), mask)


def masked_sum(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of the masked-in positions; 0.0 with a zero gradient where there are none.

    Args:
        x: any shape.
        mask: same shape, bool.
        dim: the dimension to sum over; None sums over all.

    Returns:
        Scalar, or ``x`` without ``dim``; float32, or float64 if ``x`` is.

    Raises:
        ShapeError: ``x`` and ``mask`` differ in shape.
    """
    kept = fill_masked(widen(x), mask)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of the masked-in positions; 0.0 with a zero gradient where there are none.

    Args:
        x: any shape.
        mask: same shape, bool.
        dim: the dimension to average over; None averages over all.

    Returns:
        Scalar, or ``x`` without ``dim``; float32, or float64 if ``x`` is.

    Raises:
        ShapeError: ``x`` and ``mask`` differ in shape.
    """
    count = mask.count_nonzero() if dim is None else mask.sum(dim)
    return masked_sum(x, mask, dim) / count.clamp(min=1)


def masked_whiten(x: Tensor, mask: Tensor, eps: float = WHITEN_EPS) -> Tensor:
    """Shift and scale the masked-in positions to mean 0 and (unbiased) variance 1.

    Mean and variance are those of all positions of ``mask``, so pass the whole batch, not a shard. A single position
    and positions that are all equal give exactly 0.

    Args:
        x: any shape.
        mask: same shape, bool.
        eps: added to the variance.

    Returns:
        Same shape, float32 or float64: ``(x - mean) / sqrt(variance + eps)``, 0.0 where masked.

    Raises:
        ShapeError: ``x`` and ``mask`` differ in shape.
    """
    kept = fill_masked(widen(x), mask)
    if kept.numel() == 0:
        return kept
    deviation = fill_masked(kept - masked_mean(kept, mask), mask)
    variance = deviation.square().sum() / (mask.count_nonzero() - 1).clamp(min=1)
    # Rounding of the mean would be blown up by 1 / sqrt(eps) where nothing varies.
    varies = fill_masked(kept, mask, float("inf")).amin() < fill_masked(kept, mask, float("-inf")).amax()
    return torch.where(varies, deviation * torch.rsqrt(variance + eps), torch.zeros_like(deviation))
