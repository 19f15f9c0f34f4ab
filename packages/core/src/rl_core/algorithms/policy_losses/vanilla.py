"""The clipped policy loss of PPO, with separate bounds and the dual clip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.inputs import PolicyLossOutputs, TokenMetric
from rl_core.algorithms.policy_losses import ratio as shared

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import PolicyLossInputs


def vanilla(inputs: PolicyLossInputs, config: shared.CappedClipConfig) -> PolicyLossOutputs:
    """Clipped surrogate loss of each token.

    ``max(-A * ratio, -A * clip(ratio, 1 - low, 1 + high))``; where A < 0 at most ``-A * c``. Deviation from the
    sources: the log-ratio is clamped to +-20, beyond which the gradient is 0. The ratio is exactly 1 where ``log_prob``
    equals ``old_log_prob``.

    Args:
        inputs: one shard; ``rollout_is_weights`` multiply the loss. No gradient flows but through ``log_prob``.
        config: the ratio is clipped to [1 - low, 1 + high]; where A < 0 the loss is at most -A times the cap.

    Returns:
        The loss of each token, and per token: ``pg_clipfrac`` (the clipped branch is the larger), ``pg_clipfrac_lower``
        (the dual clip binds), ``ppo_kl`` (old log-prob minus new, the k1 estimate).

    Raises:
        ConfigError: a bound is negative, the lower one is above 1, or ``clip_ratio_c`` is not above 1.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7; dual clip: Ye et al. 2020, arXiv:1912.09729, section
        "Dual-clip PPO"; separate bounds: Yu et al. 2025, arXiv:2503.14476, eq. 10.
    """
    low, high = shared.clip_bounds(config, low_limit=1.0)
    dual = shared.ratio_cap(config)
    log_ratio = shared.log_ratio(inputs)
    advantages = shared.advantages(inputs)

    surrogate, is_clipped = shared.clipped_surrogate(log_ratio.exp(), advantages, low, high)
    dual_bound = -advantages * dual
    negative = advantages < 0
    token_loss = torch.where(negative, torch.minimum(surrogate, dual_bound), surrogate)

    metrics = {
        "pg_clipfrac": TokenMetric(is_clipped),
        "pg_clipfrac_lower": TokenMetric(((surrogate > dual_bound) & negative).detach()),
        "ppo_kl": shared.ppo_kl(log_ratio),
    }
    return PolicyLossOutputs(shared.weighted(token_loss, inputs), metrics)
