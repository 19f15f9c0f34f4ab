"""Rules that leave out tokens, or whole responses, on which trainer and generator are too far apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import torch

from rl_core.algorithms.checks import require_same_shape
from rl_core.algorithms.masks import fill_masked, masked_sum
from rl_core.algorithms.rollout_correction.ratios import row_means

if TYPE_CHECKING:
    from torch import Tensor

Scope = Literal["token", "seq_sum", "seq_mean", "seq_max"]
Estimator = Literal["k1", "k2", "k3"]


class Rule(Protocol):
    """One rule. Its name is scope and estimator: ``seq_mean_k3``."""

    @property
    def scope(self) -> Scope:
        """What is measured and left out: the token, or the response by its tokens' sum, mean or largest value."""
        ...

    @property
    def estimator(self) -> Estimator:
        """How a token's distance is measured."""
        ...

    @property
    def lower(self) -> float | None:
        """``k1``: smallest ratio that is kept; None for the others."""
        ...

    @property
    def upper(self) -> float:
        """``k1``: largest ratio that is kept; the others: largest distance."""
        ...


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one rule did.

    Attributes:
        name: of the rule.
        distance: [B, T] or, for a rule about responses, [B]: float64, 0.0 where there is no token.
        counted: same shape, bool: where there is a token.
        is_high: same shape, bool: a ratio, or distance, above the upper bound.
        is_low: same shape, bool: a ratio below the lower bound.
        rejected: [B, T] bool, masked-in tokens that the rule leaves out.
    """

    name: str
    distance: Tensor
    counted: Tensor
    is_high: Tensor
    is_low: Tensor
    rejected: Tensor


@torch.no_grad()
def reject(log_ratio: Tensor, mask: Tensor, rules: Sequence[Rule]) -> tuple[Tensor, tuple[Outcome, ...]]:
    """Apply every rule to the same tokens; one that rejects is enough.

    With r the ratio of trainer to generator: ``k1 = -log r``, ``k2 = (log r)^2 / 2``, ``k3 = r - 1 - log r``. All three
    average to the KL divergence of the generator from the trainer (k2 nearly); k2 and k3 are never negative. A k1 rule
    keeps ``lower <= exp(-k1) <= upper``: r itself for a token, the product of a response's ratios for ``seq_sum``,
    their geometric mean for ``seq_mean``. A k2 or k3 rule keeps distances up to ``upper``.

    Args:
        log_ratio: [B, T] float64, of ``log_ratios``.
        mask: [B, T] bool. A row must be whole.
        rules: in any order.

    Returns:
        [B, T] bool, masked-in tokens that are rejected; and what each rule did. A rule about responses rejects all tokens
        of a row or none, and never one without tokens.

    Raises:
        ShapeError: shapes differ.

    Source: Schulman 2020, "Approximating KL divergence" (k1, k2, k3); rejection of whole responses and its geometric
        form: Liu, Li et al. 2025, "When Speed Kills Stability"; Li et al. 2025, arXiv:2512.23075.
    """
    require_same_shape("log_ratio", log_ratio, "mask", mask)
    outcomes = tuple(_apply(log_ratio, mask, rule) for rule in rules)
    rejected = torch.zeros_like(mask)
    for outcome in outcomes:
        rejected = rejected | outcome.rejected
    return rejected, outcomes


def _apply(log_ratio: Tensor, mask: Tensor, rule: Rule) -> Outcome:
    distances = fill_masked(_distances(log_ratio, rule.estimator), mask)
    if rule.scope == "token":
        distance, counted = distances, mask
    else:
        distance, counted = _of_rows(distances, mask, rule.scope), mask.any(dim=1)
    is_low = torch.zeros_like(counted)
    if rule.estimator == "k1":
        is_high = -distance > math.log(rule.upper)
        if rule.lower is not None:
            is_low = -distance < math.log(rule.lower)
    else:
        is_high = distance > rule.upper
    is_high, is_low = is_high & counted, is_low & counted
    outside = is_high | is_low
    rejected = outside if rule.scope == "token" else outside.unsqueeze(1) & mask
    return Outcome(f"{rule.scope}_{rule.estimator}", distance, counted, is_high, is_low, rejected)


def _distances(log_ratio: Tensor, estimator: Estimator) -> Tensor:
    if estimator == "k1":
        return -log_ratio
    if estimator == "k2":
        return log_ratio.square() / 2
    return torch.expm1(log_ratio) - log_ratio


def _of_rows(distances: Tensor, mask: Tensor, scope: Scope) -> Tensor:
    if scope == "seq_sum":
        return masked_sum(distances, mask, dim=1)
    if scope == "seq_mean":
        return row_means(distances, mask)
    # Distances with a maximum are never negative, so the 0.0 of a masked position changes no row that has tokens.
    return distances.amax(dim=1) if distances.shape[1] else distances.new_zeros(len(distances))
