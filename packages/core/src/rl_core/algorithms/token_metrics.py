"""A shard's share of a metric of the whole mini-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rl_core.algorithms.masks import fill_masked, masked_sum

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import LossTotals, TokenMetric

ShardReduce = Literal["sum", "max", "min"]


def metric_share(metric: TokenMetric, response_mask: Tensor, totals: LossTotals) -> tuple[Tensor, ShardReduce] | None:
    """Reduce a token metric over this shard, in a form that combines over shards.

    A mean becomes a sum divided by the token count of the whole mini-batch, so summing the shares of all
    micro-batches and ranks gives the mean over all tokens.

    Args:
        metric: the per-token values.
        response_mask: [B, T] bool.
        totals: counts of the whole mini-batch.

    Returns:
        The scalar share (float64, no gradient) and how shares combine: "sum", "max" or "min". None for a
        "max" or "min" when this shard has no token: no number would be neutral.

    Raises:
        ShapeError: values and mask differ in shape.
    """
    values = metric.values.detach().double()  # a fraction of tokens must not depend on how they are cut
    if metric.reduce == "mean":
        return masked_sum(values, response_mask) / max(totals.num_tokens, 1), "sum"
    if metric.reduce == "sum":
        return masked_sum(values, response_mask), "sum"
    if not bool(response_mask.any()):
        return None
    if metric.reduce == "max":
        return fill_masked(values, response_mask, float("-inf")).amax(), "max"
    return fill_masked(values, response_mask, float("inf")).amin(), "min"
