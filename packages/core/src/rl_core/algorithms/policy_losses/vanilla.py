"""The clipped policy loss of PPO, with separate bounds and the dual clip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from rl_core.algorithms.inputs import PolicyLossOutputs, TokenMetric
from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import PolicyLossInputs

LOG_RATIO_LIMIT = 20.0
"""The log-ratio is clamped to +-this before the exponential, so that no gradient is 0 * inf."""


class VanillaConfig(Protocol):
    """The keys of ``actor_rollout_ref.actor`` that the clipped loss reads."""

    @property
    def clip_ratio(self) -> float:
        """Both bounds, where the two keys below are None."""
        ...

    @property
    def clip_ratio_low(self) -> float | None:
        """The ratio is clipped at 1 - this from below; None takes ``clip_ratio``."""
        ...

    @property
    def clip_ratio_high(self) -> float | None:
        """The ratio is clipped at 1 + this from above; None takes ``clip_ratio``."""
        ...

    @property
    def clip_ratio_c(self) -> float:
        """Dual clip: with a negative advantage A the loss is at most -A times this; above 1."""
        ...


def vanilla(inputs: PolicyLossInputs, config: VanillaConfig) -> PolicyLossOutputs:
    """Clipped surrogate loss of each token.

    ``max(-A * ratio, -A * clip(ratio, 1 - low, 1 + high))``; where A < 0 at most ``-A * c``. Deviation from the
    sources: the log-ratio is clamped to +-20, beyond which the gradient is 0. The ratio is exactly 1 where ``log_prob``
    equals ``old_log_prob``.

    Args:
        inputs: one shard; ``rollout_is_weights`` multiply the loss. No gradient flows but through ``log_prob``.
        config: clip bounds.

    Returns:
        The loss of each token, and per token: ``pg_clipfrac`` (the clipped branch is the larger), ``pg_clipfrac_lower``
        (the dual clip binds), ``ppo_kl`` (old log-prob minus new, the k1 estimate).

    Raises:
        ConfigError: a bound is negative, the lower one is above 1, or ``clip_ratio_c`` is not above 1.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7; dual clip: Ye et al. 2020, arXiv:1912.09729, section
        "Dual-clip PPO"; separate bounds: Yu et al. 2025, arXiv:2503.14476, eq. 10.
    """
    low, high, dual = _clip_bounds(config)
    mask = inputs.response_mask
    # Masked before the exponential: garbage there must reach neither the loss nor, as 0 * inf, the gradient.
    log_ratio = fill_masked(widen(inputs.log_prob) - widen(inputs.old_log_prob.detach()), mask)
    log_ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    advantages = fill_masked(widen(inputs.advantages.detach()), mask)
    ratio = log_ratio.exp()

    unclipped = -advantages * ratio
    clipped = -advantages * ratio.clamp(1.0 - low, 1.0 + high)
    surrogate = torch.maximum(unclipped, clipped)
    dual_bound = -advantages * dual
    negative = advantages < 0
    token_loss = torch.where(negative, torch.minimum(surrogate, dual_bound), surrogate)
    if inputs.rollout_is_weights is not None:
        token_loss = token_loss * fill_masked(widen(inputs.rollout_is_weights.detach()), mask)

    metrics = {
        "pg_clipfrac": TokenMetric((clipped > unclipped).detach()),
        "pg_clipfrac_lower": TokenMetric(((surrogate > dual_bound) & negative).detach()),
        "ppo_kl": TokenMetric(-log_ratio.detach()),
    }
    return PolicyLossOutputs(token_loss, metrics)


def _clip_bounds(config: VanillaConfig) -> tuple[float, float, float]:
    low = config.clip_ratio if config.clip_ratio_low is None else config.clip_ratio_low
    high = config.clip_ratio if config.clip_ratio_high is None else config.clip_ratio_high
    if not (0.0 <= low <= 1.0 and high >= 0.0):
        msg = (
            f"the policy ratio is clipped to [1 - clip_ratio_low, 1 + clip_ratio_high], which needs clip_ratio_low in "
            f"[0, 1] and clip_ratio_high >= 0; found {low} and {high}. Set them, or clip_ratio for both."
        )
        raise ConfigError(msg)
    if not config.clip_ratio_c > 1.0:
        msg = f"clip_ratio_c (dual clip) must be above 1; found {config.clip_ratio_c}. The usual value is 3.0."
        raise ConfigError(msg)
    return low, high, config.clip_ratio_c
