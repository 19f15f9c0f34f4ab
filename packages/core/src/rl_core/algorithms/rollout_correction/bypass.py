"""Correction inside the loss, where the generator's log-probs are the old ones and nothing was re-scored before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from rl_core.algorithms.inputs import PolicyLossInputs, PolicyLossOutputs
from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.policy_losses import ratio as shared
from rl_core.algorithms.rollout_correction.diagnostics import mismatch, rejection_shares, weight_shares
from rl_core.algorithms.rollout_correction.ratios import log_ratios
from rl_core.algorithms.rollout_correction.rejection import Rule, reject
from rl_core.algorithms.rollout_correction.weights import Bounds, Level, importance_weights
from rl_core.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.rollout_correction.diagnostics import Shares


class BypassSettings(Protocol):
    """The keys of ``algorithm.rollout_correction``, parsed."""

    @property
    def loss_type(self) -> str:
        """``ppo_clip`` or ``reinforce``."""
        ...

    @property
    def level(self) -> Level | None:
        """``reinforce``: what a weight belongs to; None weighs nothing."""
        ...

    @property
    def bounds(self) -> Bounds:
        """Of those weights."""
        ...

    @property
    def rules(self) -> Sequence[Rule]:
        """What is left out."""
        ...


def bypass_loss(
    inputs: PolicyLossInputs,
    settings: BypassSettings,
    policy_loss: Callable[[PolicyLossInputs], PolicyLossOutputs],
) -> tuple[PolicyLossOutputs, Shares]:
    """Loss of each token against the policy that drew it.

    ``ppo_clip``: ``policy_loss`` with the generator's log-probs as old ones; its own ratio is the correction, so no weight
    is added. ``reinforce``: ``-w A log pi`` with w the weight of the CURRENT policy against the generator's, through which
    no gradient flows. Rules compare the same two policies. A rejected token has loss 0 and still counts in the averages
    of the mini-batch: what the rules reject depends on the step, and a count over shards is not known here. Nothing
    depends on how the rows were cut.

    Args:
        inputs: one shard of whole rows, with ``rollout_log_prob``; ``rollout_is_weights`` are not looked at.
        settings: which loss, weights and rules.
        policy_loss: the configured loss.

    Returns:
        The loss, and shares of the diagnostics.

    Raises:
        DataError: there is no ``rollout_log_prob``.

    Source: generator as the old policy: Schulman et al. 2017, arXiv:1707.06347, eq. 7, with the policy that sampled;
        weighted policy gradient: Precup et al. 2000, "Eligibility Traces for Off-Policy Policy Evaluation", section 3.
    """
    generator = inputs.rollout_log_prob
    if generator is None:
        msg = (
            "bypass_mode compares the policy with the generator inside the loss; found no rollout_log_probs. Let the "
            "generator report log-probs (actor_rollout_ref.rollout.calculate_log_probs)."
        )
        raise DataError(msg)
    mask, totals = inputs.response_mask, inputs.totals
    log_ratio = log_ratios(inputs.log_prob, generator, mask)
    shares = mismatch(inputs.log_prob.detach(), generator.detach(), log_ratio, mask, totals)
    if settings.loss_type == "reinforce":
        outputs, more = _reinforce(inputs, log_ratio, settings)
        shares |= more
    else:
        outputs = policy_loss(replace(inputs, old_log_prob=generator, rollout_is_weights=None))
    if settings.rules:
        rejected, outcomes = reject(log_ratio, mask, settings.rules)
        shares |= rejection_shares(rejected, outcomes, mask, totals)
        outputs = PolicyLossOutputs(fill_masked(outputs.token_loss, ~rejected), outputs.metrics)
    return outputs, shares


def _reinforce(
    inputs: PolicyLossInputs, log_ratio: Tensor, settings: BypassSettings
) -> tuple[PolicyLossOutputs, Shares]:
    loss = -shared.advantages(inputs) * shared.log_prob(inputs)
    shares: Shares = {}
    if settings.level is not None:
        found = importance_weights(log_ratio, inputs.response_mask, settings.level, settings.bounds)
        shares = weight_shares(found, inputs.response_mask, settings.bounds, inputs.totals)
        loss = loss * found.weights.to(loss.dtype)
    return PolicyLossOutputs(loss, {"ppo_kl": shared.ppo_kl(log_ratio)}), shares
