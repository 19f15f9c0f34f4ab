"""The optimal token baseline for responses with tool output in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.energy import above_energy_baseline, realized_energy
from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.returns import returns_to_go
from rl_core.algorithms.rewards import missing_rewards

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs


@torch.no_grad()
def tir_optimal_token_baseline(
    inputs: AdvantageInputs,
    config: object,
) -> tuple[Tensor, Tensor]:
    """Like ``optimal_token_baseline``, with steps counted in trained tokens.

    The k-th token that the policy emitted is compared with the k-th of the other responses, wherever tool output has
    pushed it. The same numbers as ``optimal_token_baseline`` where no response has a gap.

    Degenerate input:
        a step that only one row of the group reaches, or a group of one: the baseline is 0, the advantage G.
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

    Source: Li et al. 2026, arXiv:2602.07078, optimal token baseline with the logit-gradient proxy, for
        tool-integrated reasoning.
    """
    mask = inputs.response_mask
    present = mask & ~missing_rewards(inputs.token_level_rewards, mask).unsqueeze(1)
    returns = returns_to_go(inputs.token_level_rewards, present)
    energy = realized_energy(inputs, present)
    # Trained tokens move to the front of their row, in order.
    order = torch.argsort((~present).to(torch.int8), dim=1, stable=True)
    compared = above_energy_baseline(
        returns.gather(1, order),
        energy.gather(1, order),
        present.gather(1, order),
        inputs.uid,
        "tir_optimal_token_baseline",
    )
    advantages = torch.zeros_like(compared).scatter_(1, order, compared)
    return fill_masked(advantages, present).to(returns.dtype), returns
