"""Group policy gradient: advantages scaled up for the groups that teach nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.groups import above_baseline, group_statistics, require_uid
from rl_core.algorithms.masks import spread_over_mask
from rl_core.algorithms.rewards import sequence_rewards

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs


@torch.no_grad()
def gpg(inputs: AdvantageInputs, config: object) -> tuple[Tensor, Tensor]:
    """``alpha * (R - mean)`` over the group, the same for all tokens of a response.

    ``alpha = B / (B - M)``: B usable rows, M of them in groups whose rewards are all equal. Those have no gradient, but
    the loss divides by them too; alpha takes that back. It is a number of the batch, the same for every row.

    Degenerate input:
        all rewards of a group equal: exactly 0. Of every group: exactly 0 everywhere.
        one usable row in a group: the baseline is 0, the advantage alpha * R, and the row does not count as one of M.
        missing reward (NaN) or fully masked row: advantage 0; it counts neither in B nor in M.

    Args:
        inputs: whole groups; ``uid`` is needed.
        config: no key is read.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T], equal to the advantages.

    Raises:
        DataError: ``uid`` is None, or its entries cannot be compared with each other.

    Source: Chu et al. 2025, arXiv:2504.02546, accurate gradient estimation, with F_norm = 1.
    """
    scores, usable = sequence_rewards(inputs.token_level_rewards, inputs.response_mask)
    group = group_statistics(scores, usable, require_uid(inputs.uid, "gpg"))
    teaching = usable & (group.varies | group.alone)
    alpha = usable.sum().double() / teaching.sum().clamp(min=1)
    advantage = alpha * above_baseline(scores, group.mean, usable, group)
    advantages = spread_over_mask(advantage.to(scores.dtype), inputs.response_mask)
    return advantages, advantages.clone()
