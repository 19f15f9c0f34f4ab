"""Group-relative advantages: GRPO, and Dr. GRPO by one switch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from rl_core.algorithms.groups import relative_scores, require_uid
from rl_core.algorithms.masks import spread_over_mask
from rl_core.algorithms.rewards import sequence_rewards

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs


class GRPOConfig(Protocol):
    """The key of ``algorithm`` that GRPO reads."""

    @property
    def norm_adv_by_std_in_grpo(self) -> bool:
        """True divides by the group's standard deviation; False is Dr. GRPO."""
        ...


@torch.no_grad()
def grpo(inputs: AdvantageInputs, config: GRPOConfig) -> tuple[Tensor, Tensor]:
    """How much better a response is than the others to the same prompt, the same for all its tokens.

    ``(R - mean) / (std + 1e-6)`` over the group, with the unbiased standard deviation; ``R - mean`` for Dr. GRPO.

    Degenerate groups:
        all rewards equal: exactly 0.
        one usable row: mean 0 and standard deviation 1 stand in, so the advantage is R / (1 + 1e-6), R for Dr. GRPO.
        missing reward (NaN) or fully masked row: advantage 0; the rest of the group is as if the row were not there.

    Args:
        inputs: whole groups; ``uid`` is needed.
        config: ``norm_adv_by_std_in_grpo``.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T], equal to the advantages.

    Raises:
        DataError: ``uid`` is None, or its entries cannot be compared with each other.

    Source: Shao et al. 2024, arXiv:2402.03300, section 4.1.2; Dr. GRPO: Liu et al. 2025, arXiv:2503.20783, section 3.2.
    """
    scores, usable = sequence_rewards(inputs.token_level_rewards, inputs.response_mask)
    uid = require_uid(inputs.uid, "grpo")
    advantage = relative_scores(scores, usable, uid, by_std=config.norm_adv_by_std_in_grpo).to(scores.dtype)
    advantages = spread_over_mask(advantage, inputs.response_mask)
    return advantages, advantages.clone()
