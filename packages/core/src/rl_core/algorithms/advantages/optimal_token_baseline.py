"""Advantages over a baseline of their own at every token: OTB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.energy import above_energy_baseline, realized_energy
from rl_core.algorithms.returns import returns_to_go
from rl_core.algorithms.rewards import missing_rewards

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs


@torch.no_grad()
def optimal_token_baseline(inputs: AdvantageInputs, config: object) -> tuple[Tensor, Tensor]:
    """Return of each token above the group's energy-weighted mean return at the same position of the response.

    ``G_t - sum_i W_t^i G_t^i / sum_i W_t^i``: G the undiscounted return to go, W the squared gradient norm gathered up
    to t. For responses of one turn; where tools answer in between, ``tir_optimal_token_baseline`` lines tokens up better.

    Degenerate input:
        a position that only one row of the group reaches, or a group of one: the baseline is 0, the advantage G.
        all returns at a step equal: exactly 0.
        no row has gathered energy (the policy is certain): the plain mean is the baseline.
        missing reward (NaN) or fully masked row: advantage 0; the rest of the group is as if the row were not there.

    Args:
        inputs: whole groups; ``uid`` and ``extras`` with ``old_log_probs`` and ``sum_pi_squared`` are needed;
            ``rollout_is_weights`` scale the energy where the batch has them.
        config: no key is read.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T] without the baseline, 0.0 where masked.

    Raises:
        DataError: a column is missing or not finite; ``uid`` is None or cannot be compared.

    Source: Li et al. 2026, arXiv:2602.07078, optimal token baseline with the logit-gradient proxy.
    """
    mask = inputs.response_mask
    present = mask & ~missing_rewards(inputs.token_level_rewards, mask).unsqueeze(1)
    returns = returns_to_go(inputs.token_level_rewards, present)
    energy = realized_energy(inputs, present)
    advantages = above_energy_baseline(returns, energy, present, inputs.uid, "optimal_token_baseline")
    return advantages.to(returns.dtype), returns
