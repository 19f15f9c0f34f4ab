"""The baseline of least variance for each token of a group, from what a forward pass gives: OTB.

Shared by the estimators ``optimal_token_baseline`` and ``tir_optimal_token_baseline``, which differ only in what they
call the same step of two responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from rl_core.algorithms.checks import require_same_shape
from rl_core.algorithms.groups import group_index, require_uid
from rl_core.algorithms.masks import fill_masked
from rl_core.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs

ROWS_AT_A_TIME: Final = 256
STEPS_AT_A_TIME: Final = 64
"""Parts of a large batch, whose float64 tensors would otherwise be asked of the system one by one."""


def realized_energy(inputs: AdvantageInputs, present: Tensor) -> Tensor:
    """Squared gradient norm that a response has gathered up to each of its tokens, by the logit-gradient proxy.

    ``W_t = sum_{j <= t} w_j^2 (1 - 2 pi_j + sum_v pi_j(v)^2)`` over masked-in tokens, pi_j the probability of the token
    and w_j its ``rollout_is_weights`` where the batch has them. No term is negative.

    Args:
        inputs: ``extras`` with ``old_log_probs`` and ``sum_pi_squared``, [B, T] float.
        present: [B, T] bool.

    Returns:
        [B, T] float64; at a masked position what was gathered before it.

    Raises:
        DataError: a column is not there, or holds NaN or infinity at a present position.
        ShapeError: a column has another shape than the mask.

    Source: Li et al. 2026, arXiv:2602.07078, realized energy and the logit-gradient proxy.
    """
    log_prob, sum_pi_squared = (_column(inputs, name, present) for name in ("old_log_probs", "sum_pi_squared"))
    weight = _column(inputs, "rollout_is_weights", present) if "rollout_is_weights" in inputs.extras else None
    gathered = []
    for rows in _slices(len(present), ROWS_AT_A_TIME):
        energy = (1 - 2 * log_prob[rows].double().exp() + sum_pi_squared[rows].double()).clamp(min=0)
        if weight is not None:
            energy = energy * weight[rows].double().square()
        gathered.append(fill_masked(energy, present[rows]).cumsum(dim=1))
    return torch.cat(gathered) if gathered else log_prob.double()


def above_energy_baseline(
    returns: Tensor, energy: Tensor, present: Tensor, uid: np.ndarray | None, estimator: str
) -> Tensor:
    """Return of each token above the energy-weighted mean return of its group at the same step (column).

    ``G_t - sum_i W_t^i G_t^i / sum_i W_t^i`` over the rows i of the group that are present at t; the plain mean where no
    row has gathered energy. Exactly 0 where those returns are all equal; the return itself where a row is alone.

    Args:
        returns: [B, S] float.
        energy: [B, S] float64, not negative.
        present: [B, S] bool.
        uid: [B] array naming the prompt of each row.
        estimator: how a message calls it.

    Returns:
        [B, S] float64, 0.0 where not present.

    Raises:
        DataError: ``uid`` is None, or its entries cannot be compared with each other.

    Source: Li et al. 2026, arXiv:2602.07078, optimal token baseline.
    """
    numbered, num_groups = group_index(require_uid(uid, estimator))
    index = torch.as_tensor(numbered, device=returns.device)
    above = torch.zeros(returns.shape, dtype=torch.float64, device=returns.device)
    for steps in _slices(returns.shape[1], STEPS_AT_A_TIME):
        above[:, steps] = _above_baseline(
            returns[:, steps].double(), energy[:, steps], present[:, steps], index, num_groups
        )
    return above


def _above_baseline(returns: Tensor, energy: Tensor, present: Tensor, index: Tensor, num_groups: int) -> Tensor:
    """``above_energy_baseline`` of some steps; ``index`` [B] is the group of each row."""
    shape = (num_groups, returns.shape[1])
    returns = fill_masked(returns, present)
    weight = fill_masked(energy, present)

    def total(values: Tensor) -> Tensor:
        return values.new_zeros(shape).index_add_(0, index, values)[index]

    def extreme(fill: float, reduce: str) -> Tensor:
        values = fill_masked(returns, present, fill)
        return values.new_full(shape, fill).scatter_reduce_(0, index[:, None].expand_as(values), values, reduce)[index]

    count, weights = total(present.double()), total(weight)
    mean = total(returns) / count.clamp(min=1)
    # A tiny total keeps its quotient: the weighted mean does not depend on the scale of the weights.
    baseline = torch.where(weights > 0, total(weight * returns) / weights.where(weights > 0, 1.0), mean)
    alone = count == 1
    varies = extreme(float("inf"), "amin") < extreme(float("-inf"), "amax")
    return fill_masked(returns - baseline.masked_fill(alone, 0.0), present & (alone | varies))


def _slices(count: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, count, size)]


def _column(inputs: AdvantageInputs, name: str, present: Tensor) -> Tensor:
    """[B, T] float, 0.0 where not present."""
    column: Tensor = inputs.extras[name]
    require_same_shape(name, column, "response_mask", present)
    column = fill_masked(column, present)
    rows = (~torch.isfinite(column)).any(dim=1).nonzero().flatten().tolist()
    if rows:
        msg = (
            f"{name} must be finite; found NaN or infinity in {len(rows)} of {len(column)} rows, first in row {rows[0]}. "
            "The policy has diverged: lower actor_rollout_ref.actor.optim.lr or resume from an earlier checkpoint."
        )
        raise DataError(msg)
    return column
