"""Advantages for the best of a group: GRPO for pass@k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from rl_core.algorithms.groups import STD_EPS, group_index, group_statistics, require_uid
from rl_core.algorithms.masks import fill_masked, spread_over_mask
from rl_core.algorithms.rewards import sequence_rewards

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs


class GRPOPassKConfig(Protocol):
    """The key of ``algorithm`` that this estimator reads."""

    @property
    def norm_adv_by_std_in_grpo(self) -> bool:
        """True divides by the group's standard deviation."""
        ...


@torch.no_grad()
def grpo_passk(inputs: AdvantageInputs, config: GRPOPassKConfig) -> tuple[Tensor, Tensor]:
    """What each response adds to the best reward of its group, the same for all its tokens.

    ``max_j R_j - max_{j != i} R_j``: the best response gets its lead over the second best, all others exactly 0; divided
    by the unbiased standard deviation of the group + 1e-6 if ``norm_adv_by_std_in_grpo``.

    Degenerate groups:
        two rows share the best reward, or all rewards are equal: exactly 0, either alone would have done.
        one usable row: the baseline is 0 and the standard deviation 1, so the advantage is R / (1 + 1e-6), or R.
        missing reward (NaN) or fully masked row: advantage 0; the rest of the group is as if the row were not there.

    Args:
        inputs: whole groups; ``uid`` is needed.
        config: ``norm_adv_by_std_in_grpo``.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T], equal to the advantages.

    Raises:
        DataError: ``uid`` is None, or its entries cannot be compared with each other.

    Source: Tang et al. 2025, arXiv:2503.19595, the leave-one-out advantage of the pass@k objective.
    """
    uid = require_uid(inputs.uid, "grpo_passk")
    scores, usable = sequence_rewards(inputs.token_level_rewards, inputs.response_mask)
    group = group_statistics(scores, usable, uid)
    lead = _lead(scores.double(), usable, uid).where(~group.alone, scores.double())
    if config.norm_adv_by_std_in_grpo:
        lead = lead / (group.std.masked_fill(group.alone, 1.0) + STD_EPS)
    advantages = spread_over_mask(fill_masked(lead, usable).to(scores.dtype), inputs.response_mask)
    return advantages, advantages.clone()


def _lead(scores: Tensor, usable: Tensor, uid: np.ndarray) -> Tensor:
    """[B]: best score of the group minus the second best at one row that has the best, 0.0 at all others."""
    numbered, _ = group_index(uid)
    lead = torch.zeros_like(scores)
    rows = usable.nonzero().flatten()
    # By group, best first: a group's first two rows are its best and its second best.
    order = rows[torch.argsort(scores[rows], descending=True, stable=True)]
    order = order[torch.argsort(torch.as_tensor(numbered, device=scores.device)[order], stable=True)]
    own = torch.as_tensor(numbered, device=scores.device)[order]
    starts = torch.ones_like(own, dtype=torch.bool)
    starts[1:] = own[1:] != own[:-1]
    first = starts.nonzero().flatten()
    first = first[first + 1 < len(order)]
    first = first[~starts[first + 1]]
    lead[order[first]] = scores[order[first]] - scores[order[first + 1]]
    return lead
