"""Soft adaptive policy optimization: a smooth gate where PPO clips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from rl_core.algorithms.inputs import PolicyLossOutputs
from rl_core.algorithms.policy_losses import ratio as shared
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import PolicyLossInputs


class SapoConfig(Protocol):
    """The keys of ``actor_rollout_ref.actor`` that the soft gate reads."""

    @property
    def tau_pos(self) -> float:
        """Steepness of the gate where the advantage is positive; above 0."""
        ...

    @property
    def tau_neg(self) -> float:
        """Steepness of the gate elsewhere; above 0. Larger dampens tokens of bad responses earlier."""
        ...


def sapo(inputs: PolicyLossInputs, config: SapoConfig) -> PolicyLossOutputs:
    """Advantage times a gate of the ratio.

    ``-A * (4 / tau) * sigmoid(tau * (ratio - 1))`` with tau = ``tau_pos`` where A > 0, else ``tau_neg``. At ratio 1 the
    gate has slope 1, so the gradient is that of the plain policy gradient; far from 1 it fades out on both sides.
    Deviation: the log-ratio is clamped to +-20, beyond which the gradient is 0.

    Args:
        inputs: one shard; ``rollout_is_weights`` multiply the loss. No gradient flows but through ``log_prob``.
        config: the two temperatures.

    Returns:
        The loss of each token, to be aggregated by ``seq-mean-token-mean``, and per token ``ppo_kl`` (old log-prob
        minus new).

    Raises:
        ConfigError: a temperature is not above 0.

    Source: Gao et al. 2025, arXiv:2511.20347, the objective and its gate.
    """
    if not (config.tau_pos > 0 and config.tau_neg > 0):
        msg = (
            f"sapo needs tau_pos and tau_neg above 0; found {config.tau_pos} and {config.tau_neg}. The paper: 1, 1.05."
        )
        raise ConfigError(msg)
    log_ratio = shared.log_ratio(inputs)
    advantages = shared.advantages(inputs)
    positive, negative = (log_ratio.new_tensor(tau) for tau in (config.tau_pos, config.tau_neg))
    tau = torch.where(advantages > 0, positive, negative)
    gate = torch.sigmoid(tau * (log_ratio.exp() - 1.0)) * (4.0 / tau)
    return PolicyLossOutputs(shared.weighted(-advantages * gate, inputs), {"ppo_kl": shared.ppo_kl(log_ratio)})
