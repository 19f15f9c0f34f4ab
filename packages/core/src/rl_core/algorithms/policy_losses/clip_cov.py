"""PPO without the gradient of some tokens of high covariance: Clip-Cov."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from rl_core.algorithms.inputs import PolicyLossOutputs, TokenMetric
from rl_core.algorithms.policy_losses import ratio as shared
from rl_core.algorithms.policy_losses.covariance import chosen_tokens, covariance, num_chosen

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import PolicyLossInputs, PrepareInputs


class ClipCovLossConfig(Protocol):
    """The keys of ``actor_rollout_ref.actor.policy_loss`` that the choice reads."""

    @property
    def clip_cov_ratio(self) -> float:
        """Share of the step's tokens whose gradient is dropped."""
        ...

    @property
    def clip_cov_lb(self) -> float:
        """Such tokens have a covariance above this."""
        ...

    @property
    def clip_cov_ub(self) -> float:
        """Such tokens have a covariance below this."""
        ...


class ClipCovConfig(shared.ClipConfig, Protocol):
    """The keys of ``actor_rollout_ref.actor`` that Clip-Cov reads."""

    @property
    def policy_loss(self) -> ClipCovLossConfig:
        """Settings of single losses."""
        ...


def clip_cov(inputs: PolicyLossInputs, config: ClipCovConfig) -> PolicyLossOutputs:
    """PPO's clipped loss, 0 for the chosen tokens.

    ``max(-A * ratio, -A * clip(ratio, 1 - low, 1 + high))``, and 0 where ``choose_clip_cov`` has chosen the token.
    Deviations: the paper writes the ratio without PPO's bounds, which its implementation has; when and over which tokens is
    chosen, see ``covariance``. The log-ratio is clamped to +-20.

    Args:
        inputs: one shard; ``prepared`` holds the choice, ``rollout_is_weights`` multiply the loss. No gradient flows
            but through ``log_prob``.
        config: clip bounds.

    Returns:
        The loss of each token, and per token: ``pg_clipfrac`` (the token was chosen), ``ppo_kl`` (old log-prob minus
        new).

    Raises:
        ConfigError: a bound is negative, or the lower one is above 1.
        DataError: ``prepared`` is missing.

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 12.
    """
    low, high = shared.clip_bounds(config, low_limit=1.0)
    chosen = chosen_tokens(inputs, "clip_cov")
    log_ratio = shared.log_ratio(inputs)
    surrogate, _ = shared.clipped_surrogate(log_ratio.exp(), shared.advantages(inputs), low, high)
    token_loss = torch.where(chosen, 0.0, surrogate)
    metrics = {"pg_clipfrac": TokenMetric(chosen), "ppo_kl": shared.ppo_kl(log_ratio)}
    return PolicyLossOutputs(shared.weighted(token_loss, inputs), metrics)


def choose_clip_cov(inputs: PrepareInputs, config: ClipCovConfig) -> Tensor:
    """Tokens drawn evenly from those whose covariance lies between the bounds.

    Args:
        inputs: every row of the step, and the seed of the draw.
        config: share and bounds. A share that comes to less than one token is one token; 0 chooses none.

    Returns:
        [B, T] bool.

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 11.
    """
    settings = config.policy_loss
    values = covariance(inputs)
    is_candidate = (values > settings.clip_cov_lb) & (values < settings.clip_cov_ub) & inputs.response_mask
    candidates = is_candidate.nonzero()
    wanted = min(num_chosen(inputs, settings.clip_cov_ratio), len(candidates))
    # Drawn among the candidates, whose order is that of the rows: padding does not change the draw.
    drawn = np.random.default_rng(inputs.seed).permutation(len(candidates))[:wanted]
    rows, places = candidates[torch.from_numpy(drawn)].unbind(1)
    chosen = torch.zeros_like(inputs.response_mask)
    chosen[rows, places] = True
    return chosen
