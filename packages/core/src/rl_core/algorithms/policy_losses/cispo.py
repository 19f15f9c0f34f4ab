"""Clipped importance weights on the policy gradient: no token loses its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.algorithms.inputs import PolicyLossOutputs, TokenMetric
from rl_core.algorithms.policy_losses import ratio as shared

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import PolicyLossInputs


def cispo(inputs: PolicyLossInputs, config: shared.ClipConfig) -> PolicyLossOutputs:
    """Log-prob weighed by the clipped ratio.

    ``-sg(clip(ratio, 1 - low, 1 + high)) * A * log_prob`` with sg the value without its gradient. The paper leaves the
    lower side open: ``clip_ratio_low`` of 1 or more does that.

    Args:
        inputs: one shard; ``rollout_is_weights`` multiply the loss. No gradient flows but through ``log_prob``.
        config: the ratio is clipped to [1 - low, 1 + high]; ``low`` may be above 1.

    Returns:
        The loss of each token, and per token: ``pg_clipfrac`` (the ratio was clipped), ``ppo_kl`` (old log-prob minus
        new). The value of the loss depends on the size of the log-probs; only its gradient means something.

    Raises:
        ConfigError: a bound is negative.

    Source: MiniMax 2025 (MiniMax-M1), arXiv:2506.13585, eq. 4 and 5.
    """
    low, high = shared.clip_bounds(config)
    log_ratio = shared.log_ratio(inputs)
    ratio = log_ratio.detach().exp()
    weight = ratio.clamp(1.0 - low, 1.0 + high)

    token_loss = -weight * shared.advantages(inputs) * shared.log_prob(inputs)
    metrics = {"pg_clipfrac": TokenMetric(weight != ratio), "ppo_kl": shared.ppo_kl(log_ratio)}
    return PolicyLossOutputs(shared.weighted(token_loss, inputs), metrics)
