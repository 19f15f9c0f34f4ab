"""Advantages over the reward of the greedy response: ReMax."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.checks import require_same_shape
from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.precision import widen
from rl_core.algorithms.returns import returns_to_go
from rl_core.algorithms.rewards import missing_rewards

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs


@torch.no_grad()
def remax(inputs: AdvantageInputs, config: object) -> tuple[Tensor, Tensor]:
    """Return of each token above the reward that the greedy response to the same prompt gets.

    ``sum_{s >= t} r_s - b(x)``, undiscounted; observations between two tokens of the policy are stepped over. The
    baseline does not depend on the response, so a prompt needs no second one.

    Degenerate input:
        the greedy response's reward is missing (NaN), the row's own is, or the row is fully masked: advantage 0.
        all rewards equal to their baselines: exactly 0 where the reward stands on the last token.

    Args:
        inputs: the batch; ``extras["reward_baselines"]`` [B] float is needed.
        config: no key is read.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T] without the baseline, 0.0 where masked.

    Raises:
        DataError: the batch has no ``reward_baselines``.
        ShapeError: there is not one baseline a row.

    Source: Li et al. 2023, arXiv:2310.10505, the ReMax gradient estimator.
    """
    mask = inputs.response_mask
    baselines = widen(inputs.extras["reward_baselines"])
    require_same_shape("reward_baselines", baselines, "one column of response_mask", mask.any(dim=1))
    present = mask & ~missing_rewards(inputs.token_level_rewards, mask).unsqueeze(1)
    returns = returns_to_go(inputs.token_level_rewards, present)
    compared = present & torch.isfinite(baselines).unsqueeze(1)
    return fill_masked(returns - baselines.unsqueeze(1), compared), returns
