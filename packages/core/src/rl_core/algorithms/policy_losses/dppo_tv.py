"""Divergence proximal policy optimization, bounded by the total variation of one token against all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.policy_losses import ratio as shared
from rl_core.algorithms.policy_losses.dppo import within_trust_region
from rl_core.algorithms.precision import widen

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import PolicyLossInputs, PolicyLossOutputs


def dppo_tv(inputs: PolicyLossInputs, config: shared.CappedClipConfig) -> PolicyLossOutputs:
    """Policy gradient of the tokens whose probability has not moved too far.

    ``-A * sg(min(ratio, c)) * log_prob`` where ``p - p_old <= high`` (A > 0) or ``p - p_old >= -low`` (otherwise), 0
    elsewhere; p is the token's probability, sg the value without its gradient. A rare token may multiply its probability,
    a frequent one may not lose much of it.

    Args:
        inputs: one shard; ``rollout_is_weights`` multiply the loss. No gradient flows but through ``log_prob``.
        config: ``clip_ratio*`` bound the change of probability, not the ratio; ``clip_ratio_c`` caps the weight, and
            the authors' own runs leave it wide, at 20.

    Returns:
        See ``within_trust_region``.

    Raises:
        ConfigError: a bound is negative, or ``clip_ratio_c`` is not above 1.

    Source: Qi et al. 2026, arXiv:2602.04879, the binary total variation; the cap is that of its implementation.
    """
    low, high = shared.clip_bounds(config)
    mask = inputs.response_mask
    log_prob = shared.log_prob(inputs).detach()
    moved = log_prob.exp() - fill_masked(widen(inputs.old_log_prob.detach()), mask).exp()
    is_within = torch.where(shared.advantages(inputs) > 0, moved <= high, moved >= -low)
    return within_trust_region(inputs, is_within, shared.ratio_cap(config))
