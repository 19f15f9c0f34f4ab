"""Which models a configuration needs besides the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.plugins import Registry


def needs_critic(config: PPOTrainerConfig, registry: Registry) -> bool:
    """Whether a value function is trained: as ``critic.enable`` says, else when the estimator needs values."""
    if config.critic.enable is not None:
        return config.critic.enable
    return "values" in registry.record("advantage", config.algorithm.adv_estimator).needs


def needs_reference(config: PPOTrainerConfig) -> bool:
    """Whether a KL term, in the reward or in the loss, needs the reference policy."""
    return config.algorithm.use_kl_in_reward or config.actor_rollout_ref.actor.use_kl_loss
