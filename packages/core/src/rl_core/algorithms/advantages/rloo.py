"""Leave-one-out advantages: RLOO."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.groups import above_baseline, group_statistics, leave_one_out_mean, require_uid
from rl_core.algorithms.masks import spread_over_mask
from rl_core.algorithms.rewards import sequence_rewards

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs


@torch.no_grad()
def rloo(inputs: AdvantageInputs, config: object) -> tuple[Tensor, Tensor]:
    """Reward above the mean of the *other* responses to the same prompt, the same for all tokens of a response.

    ``R_i - sum_{j != i} R_j / (n - 1)``, which is n / (n - 1) times what Dr. GRPO gives.

    Degenerate input:
        all rewards equal: exactly 0.
        one usable row: there are no others, the baseline is 0 and the advantage R.
        missing reward (NaN) or fully masked row: advantage 0; the rest of the group is as if the row were not there.

    Args:
        inputs: whole groups; ``uid`` is needed.
        config: no key is read.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T], equal to the advantages.

    Raises:
        DataError: ``uid`` is None, or its entries cannot be compared with each other.

    Source: Ahmadian et al. 2024, arXiv:2402.14740, the RLOO estimator.
    """
    scores, usable = sequence_rewards(inputs.token_level_rewards, inputs.response_mask)
    group = group_statistics(scores, usable, require_uid(inputs.uid, "rloo"))
    advantage = above_baseline(scores, leave_one_out_mean(scores, group), usable, group)
    advantages = spread_over_mask(advantage.to(scores.dtype), inputs.response_mask)
    return advantages, advantages.clone()
