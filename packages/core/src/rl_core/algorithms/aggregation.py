"""From a loss per token to one scalar: the ``loss_agg_mode`` functions.

Each function returns this shard's *share*: a sum over the rows it sees, divided by a count of the whole mini-batch
that comes from outside. Adding the shares of any split of the rows (micro-batches, ranks) gives the loss, and adding
their gradients gives its gradient. Rows are never cut: a split along T (sequence parallelism) must gather the tokens
of a row first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rl_core.algorithms.checks import require_mask
from rl_core.algorithms.masks import masked_mean, masked_sum
from rl_core.errors import ConfigError, ShapeError

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import LossTotals


class Aggregation(Protocol):
    """What every ``loss_agg_mode`` function looks like."""

    def __call__(
        self, token_loss: Tensor, mask: Tensor, totals: LossTotals, loss_scale_factor: float | None = None
    ) -> Tensor:
        """Return this shard's additive share of the loss, a scalar."""
        ...


def token_mean(token_loss: Tensor, mask: Tensor, totals: LossTotals, loss_scale_factor: float | None = None) -> Tensor:
    """Mean over all tokens of the mini-batch: long responses weigh more.

    Args:
        token_loss: [B, T] float, with gradient.
        mask: [B, T] bool.
        totals: counts of the whole mini-batch; ``num_tokens`` is the divisor.
        loss_scale_factor: not used by this mode.

    Returns:
        Scalar share, float32 or float64; 0.0 with a zero gradient when nothing is masked in.

    Raises:
        ShapeError: shapes differ, or ``totals`` counts no token while the mask holds some.

    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, eq. 12.
    """
    return _divide(_token_sum(token_loss, mask), totals.num_tokens, "num_tokens", mask)


def token_sum(token_loss: Tensor, mask: Tensor, totals: LossTotals, loss_scale_factor: float | None = None) -> Tensor:
    """Sum over all tokens of the mini-batch: the loss grows with the batch.

    Args:
        token_loss: [B, T] float, with gradient.
        mask: [B, T] bool.
        totals: not used by this mode.
        loss_scale_factor: not used by this mode.

    Returns:
        Scalar share, float32 or float64; 0.0 with a zero gradient when nothing is masked in.

    Raises:
        ShapeError: shapes differ.
    """
    return _token_sum(token_loss, mask)


def seq_mean_token_sum(
    token_loss: Tensor, mask: Tensor, totals: LossTotals, loss_scale_factor: float | None = None
) -> Tensor:
    """Mean over sequences of the sum over their tokens.

    Args:
        token_loss: [B, T] float, with gradient.
        mask: [B, T] bool.
        totals: counts of the whole mini-batch; ``num_sequences`` is the divisor.
        loss_scale_factor: not used by this mode.

    Returns:
        Scalar share, float32 or float64; 0.0 with a zero gradient when nothing is masked in.

    Raises:
        ShapeError: shapes differ, or ``totals`` counts no sequence while the mask holds some.
    """
    return _divide(_token_sum(token_loss, mask), totals.num_sequences, "num_sequences", mask)


def seq_mean_token_sum_norm(
    token_loss: Tensor, mask: Tensor, totals: LossTotals, loss_scale_factor: float | None = None
) -> Tensor:
    """Mean over sequences of the token sum divided by one constant, so that length is not normalised away.

    Args:
        token_loss: [B, T] float, with gradient.
        mask: [B, T] bool.
        totals: counts of the whole mini-batch; ``num_sequences`` is the first divisor.
        loss_scale_factor: the constant; None takes ``totals.max_response_length``, never the padded width.

    Returns:
        Scalar share, float32 or float64; 0.0 with a zero gradient when nothing is masked in.

    Raises:
        ConfigError: ``loss_scale_factor`` is not above 0.
        ShapeError: shapes differ, or ``totals`` counts no sequence while the mask holds some.

    Source: Liu et al. 2025 (Dr. GRPO), arXiv:2503.20783, section 3.2.
    """
    scale = float(totals.max_response_length) if loss_scale_factor is None else loss_scale_factor
    if not scale > 0:
        msg = (
            f"loss_scale_factor must be above 0; found {scale}. Leave it null to divide by the maximum response length."
        )
        raise ConfigError(msg)
    return seq_mean_token_sum(token_loss, mask, totals) / scale


def seq_mean_token_mean(
    token_loss: Tensor, mask: Tensor, totals: LossTotals, loss_scale_factor: float | None = None
) -> Tensor:
    """Mean over sequences of the mean over their tokens: every response weighs the same.

    Args:
        token_loss: [B, T] float, with gradient.
        mask: [B, T] bool; a row must be whole.
        totals: counts of the whole mini-batch; ``num_sequences`` is the divisor.
        loss_scale_factor: not used by this mode.

    Returns:
        Scalar share, float32 or float64; 0.0 with a zero gradient when nothing is masked in.

    Raises:
        ShapeError: shapes differ, or ``totals`` counts no sequence while the mask holds some.

    Source: Shao et al. 2024 (GRPO), arXiv:2402.03300, eq. 3.
    """
    require_mask(mask, "mask")
    return _divide(masked_mean(token_loss, mask, dim=1).sum(), totals.num_sequences, "num_sequences", mask)


def _token_sum(token_loss: Tensor, mask: Tensor) -> Tensor:
    require_mask(mask, "mask")
    return masked_sum(token_loss, mask)


def _divide(total: Tensor, count: int, count_name: str, mask: Tensor) -> Tensor:
    if count > 0:
        return total / count
    if bool(mask.any()):
        msg = (
            f"the mini-batch was said to hold {count_name}=0, but this shard's mask holds {int(mask.sum())} tokens. "
            "Count the totals over the masks of the whole mini-batch (LossTotals.of)."
        )
        raise ShapeError(msg)
    return total
