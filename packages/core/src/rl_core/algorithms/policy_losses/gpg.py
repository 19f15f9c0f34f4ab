"""Group policy gradient: the objective itself, without a surrogate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.algorithms.inputs import PolicyLossOutputs
from rl_core.algorithms.policy_losses import ratio as shared

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import PolicyLossInputs


def gpg(inputs: PolicyLossInputs, config: object) -> PolicyLossOutputs:
    """``-A * log_prob`` of each token.

    Neither a ratio nor a bound: made for one optimizer step on fresh responses, and for the advantage ``gpg``.

    Args:
        inputs: one shard; ``rollout_is_weights`` multiply the loss. No gradient flows but through ``log_prob``.
        config: not used.

    Returns:
        The loss of each token, and per token ``ppo_kl`` (old log-prob minus new, a measurement only). The value of the
        loss depends on the size of the log-probs; only its gradient means something.

    Source: Chu et al. 2025, arXiv:2504.02546, the objective of GPG.
    """
    token_loss = -shared.advantages(inputs) * shared.log_prob(inputs)
    return PolicyLossOutputs(shared.weighted(token_loss, inputs), {"ppo_kl": shared.ppo_kl(shared.log_ratio(inputs))})
