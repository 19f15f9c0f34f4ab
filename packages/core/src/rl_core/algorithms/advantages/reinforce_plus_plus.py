"""REINFORCE with a discounted return and whitening over the batch: REINFORCE++."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from rl_core.algorithms.masks import masked_whiten
from rl_core.algorithms.returns import returns_to_go
from rl_core.algorithms.rewards import missing_rewards

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs


class ReinforcePlusPlusConfig(Protocol):
    """The key of ``algorithm`` that REINFORCE++ reads."""

    @property
    def gamma(self) -> float:
        """Discount per token, in [0, 1]."""
        ...


@torch.no_grad()
def reinforce_plus_plus(inputs: AdvantageInputs, config: ReinforcePlusPlusConfig) -> tuple[Tensor, Tensor]:
    """Discounted return of each token, whitened over all masked-in tokens of the batch.

    Observations between two tokens of the policy are stepped over: a reward at the end reaches the tokens before a tool
    call too. The KL penalty of the paper is the one in the reward, ``algorithm.use_kl_in_reward``.

    Degenerate input:
        missing reward (NaN) or fully masked row: advantage and return 0, outside the whitening.
        one token in the batch, or all returns equal: exactly 0.

    Args:
        inputs: the whole batch; prompts need no second response.
        config: ``gamma``.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T] before whitening, 0.0 where masked.

    Raises:
        ConfigError: gamma lies outside [0, 1].

    Source: Hu et al. 2025, arXiv:2501.03262, global advantage normalization.
    """
    mask = inputs.response_mask
    present = mask & ~missing_rewards(inputs.token_level_rewards, mask).unsqueeze(1)
    returns = returns_to_go(inputs.token_level_rewards, present, config.gamma)
    return masked_whiten(returns, present), returns
