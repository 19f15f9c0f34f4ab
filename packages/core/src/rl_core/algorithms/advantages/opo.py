"""Advantages over a baseline that weighs responses by their length: OPO."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.groups import above_baseline, group_index, group_statistics, require_uid
from rl_core.algorithms.masks import fill_masked, spread_over_mask
from rl_core.algorithms.rewards import sequence_rewards

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs


@torch.no_grad()
def opo(inputs: AdvantageInputs, config: object) -> tuple[Tensor, Tensor]:
    """Reward above the length-weighted mean of the group, the same for all tokens of a response.

    ``R - sum_j l_j R_j / sum_j l_j`` with l the trained tokens of a response: the baseline of least variance if the
    squared gradient norm of a response grows with its length.

    Degenerate input:
        all rewards equal: exactly 0.
        one usable row: the baseline is 0 and the advantage R.
        missing reward (NaN) or fully masked row: advantage 0; the rest of the group is as if the row were not there.

    Args:
        inputs: whole groups; ``uid`` is needed.
        config: no key is read.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T], equal to the advantages.

    Raises:
        DataError: ``uid`` is None, or its entries cannot be compared with each other.

    Source: Hao et al. 2025, arXiv:2505.23585, the practical form of the optimal reward baseline.
    """
    uid = require_uid(inputs.uid, "opo")
    scores, usable = sequence_rewards(inputs.token_level_rewards, inputs.response_mask)
    group = group_statistics(scores, usable, uid)
    numbered, num_groups = group_index(uid)
    index = torch.as_tensor(numbered, device=scores.device)
    lengths = fill_masked(inputs.response_mask.sum(dim=1).double(), usable)

    def total(values: Tensor) -> Tensor:
        return values.new_zeros(num_groups).index_add_(0, index, values)

    baseline = total(lengths * scores.double()) / total(lengths).clamp(min=1)
    advantage = above_baseline(scores, baseline[index], usable, group)
    advantages = spread_over_mask(advantage.to(scores.dtype), inputs.response_mask)
    return advantages, advantages.clone()
