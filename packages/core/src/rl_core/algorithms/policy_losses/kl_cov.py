"""Policy gradient with a penalty on the tokens of highest covariance: KL-Cov."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from rl_core.algorithms.inputs import PolicyLossOutputs, TokenMetric
from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.policy_losses import ratio as shared
from rl_core.algorithms.policy_losses.covariance import chosen_tokens, covariance, num_chosen

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import PolicyLossInputs, PrepareInputs


class KlCovLossConfig(Protocol):
    """The keys of ``actor_rollout_ref.actor.policy_loss`` that KL-Cov reads."""

    @property
    def kl_cov_ratio(self) -> float:
        """Share of the step's tokens that get the penalty."""
        ...

    @property
    def ppo_kl_coef(self) -> float:
        """Weight of the penalty."""
        ...


class KlCovConfig(Protocol):
    """The section of ``actor_rollout_ref.actor`` that KL-Cov reads."""

    @property
    def policy_loss(self) -> KlCovLossConfig:
        """Settings of single losses."""
        ...


def kl_cov(inputs: PolicyLossInputs, config: KlCovConfig) -> PolicyLossOutputs:
    """Unclipped surrogate; the chosen tokens pay for moving.

    ``-A * ratio``, plus ``ppo_kl_coef * |log_ratio|`` where ``choose_kl_cov`` has chosen the token. Deviations: the
    paper writes the KL divergence of the old and the new policy, for which its implementation takes that size; when and over
    which tokens is chosen, see ``covariance``. The log-ratio is clamped to +-20, beyond which the gradient is 0.
    At ratio 1 the penalty has no gradient: it acts from the second optimizer step of a trainer step on.

    Args:
        inputs: one shard; ``prepared`` holds the choice, ``rollout_is_weights`` multiply the loss, penalty included. No
            gradient flows but through ``log_prob``.
        config: weight of the penalty.

    Returns:
        The loss of each token, and per token: ``kl_cov_frac`` (the token was chosen), ``ppo_kl`` (old log-prob minus
        new).

    Raises:
        DataError: ``prepared`` is missing.

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 14.
    """
    chosen = chosen_tokens(inputs, "kl_cov")
    log_ratio = shared.log_ratio(inputs)
    penalty = torch.where(chosen, config.policy_loss.ppo_kl_coef * log_ratio.abs(), 0.0)
    token_loss = -shared.advantages(inputs) * log_ratio.exp() + penalty
    metrics = {"kl_cov_frac": TokenMetric(chosen), "ppo_kl": shared.ppo_kl(log_ratio)}
    return PolicyLossOutputs(shared.weighted(token_loss, inputs), metrics)


def choose_kl_cov(inputs: PrepareInputs, config: KlCovConfig) -> Tensor:
    """The tokens with the largest covariance.

    Args:
        inputs: every row of the step.
        config: share. Less than one token is one token; 0 chooses none. Of equal covariances the first come first.

    Returns:
        [B, T] bool.

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 13.
    """
    mask = inputs.response_mask
    values = fill_masked(covariance(inputs), mask, float("-inf")).flatten()
    order = values.argsort(descending=True, stable=True)
    chosen = torch.zeros_like(mask).flatten()
    chosen[order[: num_chosen(inputs, config.policy_loss.kl_cov_ratio)]] = True
    return chosen.view_as(mask)
