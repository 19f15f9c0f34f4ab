"""Numbers that show how far trainer and generator are apart, and what the correction did.

Most are shares, as those of ``token_metrics``: sums over the rows at hand divided by counts of the whole mini-batch, so
they add up over any cut of the rows. What does not add up stands in ``moments``. The names are those that users of the
field know.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.masks import fill_masked, masked_sum
from rl_core.algorithms.policy_losses.ratio import LOG_RATIO_LIMIT
from rl_core.algorithms.rollout_correction.ratios import row_means, row_sums

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import LossTotals
    from rl_core.algorithms.rollout_correction.rejection import Outcome
    from rl_core.algorithms.rollout_correction.weights import Bounds, ImportanceWeights
    from rl_core.algorithms.token_metrics import ShardReduce

    Shares = dict[str, tuple[Tensor, ShardReduce]]

LOG_PROB_FLOOR = -1e4
"""Stands for the log-prob of a token that one side holds for impossible, so that a mean of log-probs stays a number."""


@torch.no_grad()
def mismatch(log_prob: Tensor, rollout_log_prob: Tensor, log_ratio: Tensor, mask: Tensor, totals: LossTotals) -> Shares:
    """How far the two policies are apart on the sampled tokens; all 0 (ratios 1) where they agree.

    Args:
        log_prob: [B, T], of the policy in training.
        rollout_log_prob: [B, T], of the generator.
        log_ratio: [B, T] float64, of ``log_ratios``.
        mask: [B, T] bool.
        totals: counts of the whole mini-batch.

    Returns:
        Per token: ``kl`` and ``k3_kl`` (of the generator from the trainer), ``chi2_token`` (mean squared ratio less 1). Per
        response, each counting once: ``training_log_ppl`` and ``rollout_log_ppl`` (mean negative log-prob),
        ``training_ppl`` and ``rollout_ppl`` (their exponentials), ``log_ppl_diff`` (the first less the second; also
        absolute, largest, smallest), ``ppl_ratio`` (its exponential), ``chi2_seq``. Exponents are clamped to +-20.

    Source: perplexity and chi-square between trainer and generator: Liu, Li et al. 2025, "When Speed Kills Stability".
    """
    has_tokens = mask.any(dim=1)
    training = -row_means(fill_masked(log_prob, mask).double().clamp(min=LOG_PROB_FLOOR), mask)
    rollout = -row_means(fill_masked(rollout_log_prob, mask).double().clamp(min=LOG_PROB_FLOOR), mask)
    difference = -row_means(log_ratio, mask)
    tokens = {
        "kl": -log_ratio,
        "k3_kl": torch.expm1(log_ratio) - log_ratio,
        "chi2_token": torch.expm1(2 * log_ratio),
    }
    rows = {
        "training_log_ppl": training,
        "training_ppl": training.clamp(max=LOG_RATIO_LIMIT).exp(),
        "rollout_log_ppl": rollout,
        "rollout_ppl": rollout.clamp(max=LOG_RATIO_LIMIT).exp(),
        "log_ppl_diff": difference,
        "log_ppl_abs_diff": difference.abs(),
        "ppl_ratio": difference.exp(),
        "chi2_seq": torch.expm1(2 * row_sums(log_ratio, mask)),
    }
    shares = {name: _mean(values, mask, totals.num_tokens) for name, values in tokens.items()}
    shares |= {name: _mean(values, has_tokens, totals.num_sequences) for name, values in rows.items()}
    return shares | _extremes("log_ppl_diff", difference, has_tokens)


@torch.no_grad()
def weight_shares(found: ImportanceWeights, mask: Tensor, bounds: Bounds, totals: LossTotals) -> Shares:
    """What the weights are, over tokens and, as each response's mean, over responses.

    Args:
        found: before any scaling.
        mask: [B, T] bool.
        bounds: of the ratio; a missing lower one is the reciprocal of the upper.
        totals: counts of the whole mini-batch.

    Returns:
        ``rollout_is_mean``, ``_max``, ``_min``; the same with ``_seq``; ``rollout_is_ratio_fraction_high`` and ``_low``
        (ratios outside the bounds); ``rollout_is_oob_ratio`` (weights set to 0) where there is a lower bound.
    """
    lower = 1.0 / bounds.upper if bounds.lower is None else bounds.lower
    has_tokens, rows = mask.any(dim=1), row_means(found.weights, mask)
    high, low = found.ratio > bounds.upper, found.ratio < lower
    shares = {
        "rollout_is_mean": _mean(found.weights, mask, totals.num_tokens),
        "rollout_is_seq_mean": _mean(rows, has_tokens, totals.num_sequences),
        "rollout_is_ratio_fraction_high": _mean(high.double(), mask, totals.num_tokens),
        "rollout_is_ratio_fraction_low": _mean(low.double(), mask, totals.num_tokens),
    }
    if bounds.lower is not None:
        shares["rollout_is_oob_ratio"] = _mean((high | low).double(), mask, totals.num_tokens)
    shares |= _extremes("rollout_is", found.weights, mask)
    return shares | _extremes("rollout_is_seq", rows, has_tokens)


@torch.no_grad()
def rejection_shares(rejected: Tensor, outcomes: Sequence[Outcome], mask: Tensor, totals: LossTotals) -> Shares:
    """What the rules saw and left out.

    Returns:
        ``rollout_rs_masked_fraction`` (tokens) and ``rollout_rs_seq_masked_fraction`` (responses that lost any token), of
        all rules together and, with the rule's name in between, of each; and of each ``_mean``, ``_max``, ``_min`` of the
        distance and ``_fraction_high``, ``_fraction_low``, over tokens or, for a rule about responses, over responses.
    """
    shares = _left_out("rollout_rs", rejected, mask, totals)
    for outcome in outcomes:
        name = f"rollout_rs_{outcome.name}"
        count = totals.num_tokens if outcome.counted.dim() == 2 else totals.num_sequences
        shares |= _left_out(name, outcome.rejected, mask, totals)
        shares[f"{name}_mean"] = _mean(outcome.distance, outcome.counted, count)
        shares[f"{name}_fraction_high"] = _mean(outcome.is_high.double(), outcome.counted, count)
        shares[f"{name}_fraction_low"] = _mean(outcome.is_low.double(), outcome.counted, count)
        shares |= _extremes(name, outcome.distance, outcome.counted)
    return shares


def _left_out(name: str, rejected: Tensor, mask: Tensor, totals: LossTotals) -> Shares:
    return {
        f"{name}_masked_fraction": _mean(rejected.double(), mask, totals.num_tokens),
        f"{name}_seq_masked_fraction": _mean(rejected.any(dim=1).double(), mask.any(dim=1), totals.num_sequences),
    }


def _mean(values: Tensor, counted: Tensor, count: int) -> tuple[Tensor, ShardReduce]:
    return masked_sum(values, counted) / max(count, 1), "sum"


def _extremes(name: str, values: Tensor, counted: Tensor) -> Shares:
    """Largest and smallest; nothing for a shard without any."""
    if not counted.any():
        return {}
    largest = fill_masked(values, counted, -math.inf).amax()
    smallest = fill_masked(values, counted, math.inf).amin()
    return {f"{name}_max": (largest, "max"), f"{name}_min": (smallest, "min")}
