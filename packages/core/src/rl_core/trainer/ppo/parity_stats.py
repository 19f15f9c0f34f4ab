"""How far generator and trainer are apart, as numbers: over a step for the trackers, over its parts for the report."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import torch

from rl_core.trainer.ppo.parity_tokens import UNKNOWN, ParityTokens, parity_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rl_dataproto import DataProto
    from torch import Tensor

GAP_MEAN: Final = "training/logprob_gap/mean"
_LARGEST_LOG_RATIO: Final = 20.0
_PROBABILITIES: Final = (0.0, 0.1, 0.5, 0.9, 1.0)
_POSITION_BINS: Final = 6
_MOST_VERSIONS: Final = 6


@dataclass(frozen=True, slots=True)
class Part:
    """The gap over some of the tokens.

    Attributes:
        what: which, for people.
        num_tokens: how many, at least one.
        mean: mean absolute difference of the log-probs, in nats.
        largest: its maximum.
    """

    what: str
    num_tokens: int
    mean: float
    largest: float


def parity_metrics(batch: DataProto) -> dict[str, float]:
    """How far the generator's log-probs lie from the trainer's, over trained tokens, in nats and in probability.

    Tokens that older weights drew differ because the policy has moved since, not because a hand-over failed: where the
    batch tells them apart (``on_policy_mask``), they are left out and reported as ``training/staleness_gap``.

    Empty when the generator reports none.
    """
    tokens = parity_tokens(batch)
    if tokens is None or not len(tokens):
        return {}
    stale = tokens.where(~tokens.is_current).gap
    metrics = gap_metrics(tokens.where(tokens.is_current))
    if stale.numel():
        metrics["training/staleness_gap/mean"] = float(stale.mean())
        metrics["training/staleness_gap/max"] = float(stale.max())
    return metrics


def gap_metrics(tokens: ParityTokens) -> dict[str, float]:
    """The gap of ``tokens`` under the names of the field; ``training/rollout_probs_diff_valid`` says whether there is one.

    The k3 divergence is that of the trainer's distribution from the generator's, which has drawn the tokens: with
    ``x = log p_trainer - log p_generator`` the mean of ``exp(x) - 1 - x``. The correlation is absent where one side does not
    vary.

    Source: Schulman 2020, "Approximating KL divergence", estimator k3.
    """
    if not len(tokens):
        return {"training/rollout_probs_diff_valid": 0.0}
    gap, rollout, trainer = tokens.gap, tokens.rollout.exp(), tokens.trainer.exp()
    difference = (rollout - trainer).abs()
    moved = (-tokens.log_ratio).clamp(-_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO)
    metrics = {
        GAP_MEAN: float(gap.mean()),
        "training/logprob_gap/max": float(gap.max()),
        "training/rollout_probs_diff_valid": 1.0,
        "training/rollout_probs_diff_mean": float(difference.mean()),
        "training/rollout_probs_diff_max": float(difference.max()),
        "training/rollout_probs_diff_std": float(difference.std(correction=0)),
        "training/rollout_k3_kl": float((torch.expm1(moved) - moved).mean()),
    }
    found = correlation(rollout, trainer)
    if found is not None:
        metrics["training/rollout_actor_probs_pearson_corr"] = found
    return metrics


def correlation(one: Tensor, other: Tensor) -> float | None:
    """Pearson's, of two float64 [N]; None where one of them does not vary."""
    a, b = one - one.mean(), other - other.mean()
    scale = float(a.square().sum().sqrt() * b.square().sum().sqrt())
    return float((a * b).sum()) / scale if scale > 0 else None


def parts(tokens: ParityTokens) -> list[Part]:
    """The gap split by whose weights drew a token, by place in the response, and by probability under the trainer."""
    named = [*_by_version(tokens), *_by_position(tokens), *_by_probability(tokens)]
    return [part_of(what, tokens.where(keep)) for what, keep in named if keep.any()]


def part_of(what: str, tokens: ParityTokens) -> Part:
    """The gap over ``tokens``, at least one, as the part called ``what``."""
    return Part(what, len(tokens), float(tokens.gap.mean()), float(tokens.gap.max()))


def _by_version(tokens: ParityTokens) -> Iterator[tuple[str, Tensor]]:
    versions = sorted(set(tokens.version.tolist()) - {UNKNOWN}, reverse=True)
    for version in versions[:_MOST_VERSIONS]:
        yield f"weights of version {version}", tokens.version == version
    if versions[_MOST_VERSIONS:]:
        yield "older weights", tokens.version <= versions[_MOST_VERSIONS]


def _by_position(tokens: ParityTokens) -> Iterator[tuple[str, Tensor]]:
    yield "first token", tokens.position == 0
    end = int(tokens.position.max()) + 1 if len(tokens) else 1
    edges = sorted({1 + (end - 1) * number // _POSITION_BINS for number in range(_POSITION_BINS + 1)})
    for start, stop in pairwise(edges):
        yield f"tokens {start + 1} to {stop}", (tokens.position >= start) & (tokens.position < stop)


def _by_probability(tokens: ParityTokens) -> Iterator[tuple[str, Tensor]]:
    p = tokens.trainer.exp()
    for low, high in pairwise(_PROBABILITIES):
        yield f"probability {low:g} to {high:g}", (p > low) & (p <= high) if low else p <= high
