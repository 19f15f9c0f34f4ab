"""Group sequence policy optimization: one ratio a response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.algorithms.inputs import PolicyLossOutputs, TokenMetric
from rl_core.algorithms.masks import masked_mean
from rl_core.algorithms.policy_losses import ratio as shared

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import PolicyLossInputs


def gspo(inputs: PolicyLossInputs, config: shared.ClipConfig) -> PolicyLossOutputs:
    """PPO's clipped loss with the length-normalised ratio of the whole response.

    ``s = exp(mean over the row's tokens of the log-ratio)``, ``s_t = sg(s) * p_t / sg(p_t)`` with p_t the token's
    probability and sg the value without its gradient; ``max(-A_t * s_t, -A_t * clip(s_t, 1 - low, 1 + high))``. Every
    token has the value s and a gradient of its own, so advantages may differ within a row; where they do not, the mean
    over the row is the loss of the sequence, gradient included. Deviation: the log-ratio of each token is clamped to
    +-20 before the mean.

    Args:
        inputs: one shard of whole rows; ``rollout_is_weights`` multiply the loss. No gradient flows but through
            ``log_prob``.
        config: s is clipped to [1 - low, 1 + high]. Useful bounds are far tighter than PPO's: the paper takes 3e-4
            and 4e-4.

    Returns:
        The loss of each token, to be aggregated by ``seq-mean-token-mean``, and per token: ``pg_clipfrac`` (the clipped
        branch is the larger), ``ppo_kl`` (old log-prob minus new).

    Raises:
        ConfigError: a bound is negative, or the lower one is above 1.

    Source: Zheng et al. 2025, arXiv:2507.18071, eq. 5 and 7; per token: section "GSPO-token", eq. 13 and 14.
    """
    low, high = shared.clip_bounds(config, low_limit=1.0)
    log_ratio = shared.log_ratio(inputs)
    log_prob = shared.log_prob(inputs)
    log_s = masked_mean(log_ratio.detach(), inputs.response_mask, dim=1)
    # The difference is 0 and carries the gradient; at a masked position it carries none.
    token_s = (log_prob - log_prob.detach() + log_s[:, None]).exp()

    token_loss, is_clipped = shared.clipped_surrogate(token_s, shared.advantages(inputs), low, high)
    metrics = {"pg_clipfrac": TokenMetric(is_clipped), "ppo_kl": shared.ppo_kl(log_ratio)}
    return PolicyLossOutputs(shared.weighted(token_loss, inputs), metrics)
