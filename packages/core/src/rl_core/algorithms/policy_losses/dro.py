"""Direct reward optimization: a squared error between advantage and log-ratio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rl_core.algorithms.inputs import PolicyLossOutputs
from rl_core.algorithms.policy_losses import ratio as shared
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import PolicyLossInputs


class DroLossConfig(Protocol):
    """The key of ``actor_rollout_ref.actor.policy_loss`` that the quadratic loss reads."""

    @property
    def dro_beta(self) -> float | None:
        """Weight of the squared log-ratio, above 0; there is no default."""
        ...


class DroConfig(Protocol):
    """The section of ``actor_rollout_ref.actor`` that the quadratic loss reads."""

    @property
    def policy_loss(self) -> DroLossConfig:
        """Settings of single losses."""
        ...


def dro(inputs: PolicyLossInputs, config: DroConfig) -> PolicyLossOutputs:
    """Policy gradient, held back by the square of the log-ratio.

    ``-A * log_prob + beta / 2 * log_ratio**2``: the gradient of ``(A - beta * log_ratio)**2 / (2 * beta)`` per token.
    Deviations from the paper: a token stands for the response, the advantage for reward minus value, and the policy
    at the start of the step for the reference; the log-ratio is clamped to +-20, beyond which the square has no
    gradient.

    Args:
        inputs: one shard; ``rollout_is_weights`` multiply the loss. No gradient flows but through ``log_prob``.
        config: ``policy_loss.dro_beta``.

    Returns:
        The loss of each token, and per token ``ppo_kl`` (old log-prob minus new). The value of the loss depends on the
        size of the log-probs; only its gradient means something.

    Raises:
        ConfigError: ``dro_beta`` is not given, or not above 0.

    Source: Richemond et al. 2024, arXiv:2405.19107, the policy part of the DRO-V objective, with beta for its tau.
    """
    beta = config.policy_loss.dro_beta
    if beta is None or not beta > 0:
        msg = (
            f"policy loss 'dro' needs actor_rollout_ref.actor.policy_loss.dro_beta above 0; found {beta}. It has no "
            "default: small values learn fast, large ones keep the policy where it is."
        )
        raise ConfigError(msg)
    log_ratio = shared.log_ratio(inputs)
    token_loss = -shared.advantages(inputs) * shared.log_prob(inputs) + 0.5 * beta * log_ratio.square()
    return PolicyLossOutputs(shared.weighted(token_loss, inputs), {"ppo_kl": shared.ppo_kl(log_ratio)})
