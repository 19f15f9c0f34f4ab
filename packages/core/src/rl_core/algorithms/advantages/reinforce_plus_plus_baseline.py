"""REINFORCE++ with the group's mean as baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.groups import relative_scores, require_uid
from rl_core.algorithms.masks import masked_whiten, spread_over_mask
from rl_core.algorithms.rewards import sequence_rewards

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs


@torch.no_grad()
def reinforce_plus_plus_baseline(
    inputs: AdvantageInputs,
    config: object,
) -> tuple[Tensor, Tensor]:
    """Reward above the group's mean, whitened over all masked-in tokens of the batch.

    The group shifts, the batch scales: a group whose rewards hardly differ is not blown up by its own small deviation.

    Degenerate input:
        all rewards of the batch equal, or of every group: exactly 0 everywhere.
        all rewards of one group equal: 0 before whitening, minus the batch's mean in standard deviations after it.
        one usable row in a group: the baseline is 0, so R before whitening.
        missing reward (NaN) or fully masked row: advantage 0, outside the group's mean and the whitening.

    Args:
        inputs: whole groups; ``uid`` is needed.
        config: no key is read.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T], equal to the advantages.

    Raises:
        DataError: ``uid`` is None, or its entries cannot be compared with each other.

    Source: Hu et al. 2025, arXiv:2501.03262, REINFORCE++ with baseline.
    """
    mask = inputs.response_mask
    scores, usable = sequence_rewards(inputs.token_level_rewards, mask)
    uid = require_uid(inputs.uid, "reinforce_plus_plus_baseline")
    relative = relative_scores(scores, usable, uid, by_std=False).to(scores.dtype)
    present = mask & usable.unsqueeze(1)
    advantages = masked_whiten(spread_over_mask(relative, present), present)
    return advantages, advantages.clone()
