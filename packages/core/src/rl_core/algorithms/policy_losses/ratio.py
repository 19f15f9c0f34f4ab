"""What the policy losses share: the masked log-ratio, its bounds, and the weights of the rollout correction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import torch

from rl_core.algorithms.inputs import TokenMetric
from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import PolicyLossInputs

LOG_RATIO_LIMIT = 20.0
"""The log-ratio is clamped to +-this before the exponential, so that no gradient is 0 * inf."""


class ClipConfig(Protocol):
    """The keys of ``actor_rollout_ref.actor`` that bound a step, whatever the loss measures it by."""

    @property
    def clip_ratio(self) -> float:
        """Both bounds, where the two keys below are None."""
        ...

    @property
    def clip_ratio_low(self) -> float | None:
        """How far a token may fall; None takes ``clip_ratio``."""
        ...

    @property
    def clip_ratio_high(self) -> float | None:
        """How far a token may rise; None takes ``clip_ratio``."""
        ...


class CappedClipConfig(ClipConfig, Protocol):
    """As ``ClipConfig``, with a cap of the ratio."""

    @property
    def clip_ratio_c(self) -> float:
        """The largest ratio that weighs a token; above 1."""
        ...


def log_ratio(inputs: PolicyLossInputs) -> Tensor:
    """Log of the probability ratio of each token.

    Returns:
        [B, T] float32 or float64: log-prob minus old log-prob, clamped to +-``LOG_RATIO_LIMIT`` (the gradient is 0
        beyond), exactly 0 where both are equal and where masked. The gradient flows through ``log_prob`` alone.
    """
    # Masked before the exponential: garbage there must reach neither the loss nor, as 0 * inf, the gradient.
    difference = fill_masked(widen(inputs.log_prob) - widen(inputs.old_log_prob.detach()), inputs.response_mask)
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def log_prob(inputs: PolicyLossInputs) -> Tensor:
    """Log-prob of each token under the policy in training: [B, T] float32 or float64, 0 where masked."""
    return fill_masked(widen(inputs.log_prob), inputs.response_mask)


def advantages(inputs: PolicyLossInputs) -> Tensor:
    """Advantage of each token: [B, T] float32 or float64, no gradient, 0 where masked."""
    return fill_masked(widen(inputs.advantages.detach()), inputs.response_mask)


def clipped_surrogate(ratio: Tensor, advantage: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """The larger of the plain and the clipped loss of each token.

    Args:
        ratio: [B, T] probability ratio, with gradient.
        advantage: [B, T].
        low: the ratio is clipped at 1 - low from below.
        high: the ratio is clipped at 1 + high from above.

    Returns:
        ``max(-A * ratio, -A * clip(ratio, 1 - low, 1 + high))`` [B, T], and where the clipped one is the larger (bool,
        no gradient).
    """
    unclipped = -advantage * ratio
    clipped = -advantage * ratio.clamp(1.0 - low, 1.0 + high)
    return torch.maximum(unclipped, clipped), (clipped > unclipped).detach()


def weighted(token_loss: Tensor, inputs: PolicyLossInputs) -> Tensor:
    """The loss times ``rollout_is_weights``, through which no gradient flows; as it is where there are none."""
    if inputs.rollout_is_weights is None:
        return token_loss
    return token_loss * fill_masked(widen(inputs.rollout_is_weights.detach()), inputs.response_mask)


def ppo_kl(log_ratios: Tensor) -> TokenMetric:
    """The metric ``ppo_kl``: old log-prob minus new, the k1 estimate of how far the step has gone."""
    return TokenMetric(-log_ratios.detach())


def clip_bounds(config: ClipConfig, low_limit: float = math.inf) -> tuple[float, float]:
    """The two bounds of a step.

    Args:
        config: clip keys.
        low_limit: the largest lower bound that means something: 1 where the ratio is clipped at 1 - low.

    Returns:
        (low, high), both at least 0.

    Raises:
        ConfigError: a bound is negative, or the lower one is above ``low_limit``.
    """
    low = config.clip_ratio if config.clip_ratio_low is None else config.clip_ratio_low
    high = config.clip_ratio if config.clip_ratio_high is None else config.clip_ratio_high
    if not (0.0 <= low <= low_limit and high >= 0.0):
        allowed = ">= 0" if low_limit == math.inf else f"in [0, {low_limit:g}]"
        msg = (
            f"this policy loss needs clip_ratio_low {allowed} and clip_ratio_high >= 0; found {low} and {high}. Set "
            "them, or clip_ratio for both."
        )
        raise ConfigError(msg)
    return low, high


def ratio_cap(config: CappedClipConfig) -> float:
    """``clip_ratio_c``, checked.

    Raises:
        ConfigError: it is not above 1.
    """
    if not config.clip_ratio_c > 1.0:
        msg = (
            f"clip_ratio_c, the cap of the ratio, must be above 1; found {config.clip_ratio_c}. The usual value is 3.0."
        )
        raise ConfigError(msg)
    return config.clip_ratio_c
