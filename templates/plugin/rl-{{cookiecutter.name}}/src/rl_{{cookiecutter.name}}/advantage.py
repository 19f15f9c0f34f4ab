"""A baseline from the other responses to the same prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from rl_core.errors import DataError

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import AdvantageInputs
    from torch import Tensor


@torch.no_grad()
def leave_one_out(inputs: AdvantageInputs, config: Any) -> tuple[Tensor, Tensor]:
    """Reward of a response minus the mean reward of the others to its prompt, the same for all its tokens.

    A missing reward (NaN) and a response without trained tokens get 0 and count for nobody. So does a response that
    has no others to be compared with.

    Args:
        inputs: whole groups; ``uid`` says which rows answer the same prompt.
        config: the ``algorithm`` section; not used.

    Returns:
        advantages [B, T], 0.0 where masked; returns [B, T], equal to the advantages.

    Raises:
        DataError: there is no ``uid`` column.

    Source: Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!", eq. 8.
    """
    if inputs.uid is None:
        msg = "leave_one_out compares the responses to one prompt; found no uid column. Set rollout.n above 1."
        raise DataError(msg)
    mask = inputs.response_mask
    scores = torch.where(mask, inputs.token_level_rewards, 0.0).sum(dim=1)
    usable = mask.any(dim=1) & ~scores.isnan()
    advantage = torch.zeros_like(scores)
    for prompt in dict.fromkeys(inputs.uid.tolist()):
        rows = torch.tensor([uid == prompt for uid in inputs.uid.tolist()], device=scores.device) & usable
        count = int(rows.sum())
        if count > 1:
            others = (scores[rows].sum() - scores[rows]) / (count - 1)
            advantage[rows] = scores[rows] - others
    advantages = advantage.unsqueeze(1) * mask
    return advantages, advantages.clone()
