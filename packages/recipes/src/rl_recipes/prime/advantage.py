"""PRIME's advantage: process and outcome rewards, each against the other responses to the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from rl_core.algorithms.checks import require_same_shape
from rl_core.algorithms.groups import above_baseline, group_statistics, leave_one_out_mean, require_uid
from rl_core.algorithms.masks import fill_masked, masked_mean, masked_sum, masked_whiten, spread_over_mask
from rl_core.algorithms.returns import returns_to_go
from rl_core.algorithms.rewards import sequence_rewards
from rl_core.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from rl_core.algorithms.inputs import AdvantageInputs
    from torch import Tensor

PROCESS_COLUMN = "rm_scores"


class PrimeKeys(Protocol):
    """The keys of ``algorithm.prime``."""

    @property
    def reward_gt_coef(self) -> float:
        """Weight of the outcome."""
        ...

    @property
    def reward_dpo_coef(self) -> float:
        """Weight of the process rewards."""
        ...

    @property
    def granularity(self) -> str:
        """``token`` or ``whole``."""
        ...

    @property
    def norm(self) -> str:
        """``none`` or ``batch_norm``."""
        ...

    @property
    def whiten(self) -> bool:
        """Scale the result to mean 0 and variance 1."""
        ...


class PrimeConfig(Protocol):
    """The keys of ``algorithm`` that PRIME reads."""

    @property
    def prime(self) -> PrimeKeys:
        """Its own section."""
        ...

    @property
    def gamma(self) -> float:
        """Discount of the process rewards per token."""
        ...


@torch.no_grad()
def prime(inputs: AdvantageInputs, config: PrimeConfig) -> tuple[Tensor, Tensor]:
    """Discounted process rewards to the end of the response, plus the outcome, each minus a leave-one-out baseline.

    With r the process rewards, p_j the mean of a response's r over its tokens, R the outcome, K responses to the prompt::

        A_t = c_dpo * sum_{s >= t} gamma^(s - t) * (r_s - sum_{j != i} p_j / (K - 1))
            + c_gt * (R_i - sum_{j != i} R_j / (K - 1))

    where s runs over the response's own tokens: observations are stepped over. With granularity ``whole`` the first term
    is that of a second outcome, the sum of a response's process rewards. ``batch_norm`` first divides r by the largest
    absolute sum of process rewards to the end of a response in the batch; ``whiten`` scales A at the end.

    Degenerate input:
        outcomes of a group all equal: the outcome term is exactly 0.
        one usable row in a group: both baselines are 0.
        missing reward (NaN) or fully masked row: advantage 0; the rest is as if the row were not there.
        process rewards all 0: as many zeros, also with ``batch_norm``.

    Args:
        inputs: whole groups with ``uid``; ``extras["rm_scores"]`` [B, T] float.
        config: ``gamma`` and the section ``prime``.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T], the advantages before whitening.

    Raises:
        DataError: there is no ``uid`` or no ``rm_scores``; or a process reward is not finite, which names the row.
        ShapeError: ``rm_scores`` does not have the shape of the mask.
        ConfigError: gamma lies outside [0, 1].

    Source: Cui et al. 2025, arXiv:2502.01456, eq. 5. ``whole``, ``batch_norm`` and ``whiten`` are in its reference
    implementation, not in the paper.
    """
    keys, mask, uid = config.prime, inputs.response_mask, require_uid(inputs.uid, "prime")
    scores, usable = sequence_rewards(inputs.token_level_rewards, mask)
    usable_mask = mask & usable.unsqueeze(1)
    process = _process_rewards(inputs, usable_mask)
    if keys.norm == "batch_norm":
        largest = returns_to_go(process, usable_mask).abs().max() if process.numel() else process.new_ones(())
        process = process / torch.where(largest > 0, largest, 1.0)
    outcome = spread_over_mask(_above_others(scores, usable, uid), usable_mask)
    if keys.granularity == "whole":
        totals = masked_sum(process, usable_mask, dim=1)
        dense = spread_over_mask(_above_others(totals, usable, uid), usable_mask)
    else:
        means = masked_mean(process, usable_mask, dim=1)
        baseline = leave_one_out_mean(means, group_statistics(means, usable, uid))
        dense = returns_to_go(process - baseline.unsqueeze(1), usable_mask, config.gamma)
    returns = (keys.reward_dpo_coef * dense + keys.reward_gt_coef * outcome).to(scores.dtype)
    advantages = masked_whiten(returns, usable_mask) if keys.whiten else returns.clone()
    return fill_masked(advantages, usable_mask), returns


def _process_rewards(inputs: AdvantageInputs, usable_mask: Tensor) -> Tensor:
    """[B, T] float64, 0.0 outside of ``usable_mask``."""
    if PROCESS_COLUMN not in inputs.extras:
        msg = (
            f"prime needs a reward for each token, column {PROCESS_COLUMN!r}; there is none. Set reward_model.enable=true and "
            "reward_model.type=prime, or take recipe=prime."
        )
        raise DataError(msg)
    process: Tensor = inputs.extras[PROCESS_COLUMN]
    require_same_shape(PROCESS_COLUMN, process, "response_mask", usable_mask)
    process = fill_masked(process.double(), usable_mask)
    broken = (~torch.isfinite(process)).any(dim=1).nonzero().flatten().tolist()
    if broken:
        msg = f"process rewards of row {broken[0]} and {len(broken) - 1} more are not finite; the reward model has diverged."
        raise DataError(msg)
    return process


def _above_others(scores: Tensor, usable: Tensor, uid: np.ndarray) -> Tensor:
    """[B] float64, each score above the mean of the others of its group."""
    group = group_statistics(scores, usable, uid)
    return above_baseline(scores, leave_one_out_mean(scores, group), usable, group)
