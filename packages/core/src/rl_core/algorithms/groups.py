"""Statistics over groups: the rows that answer the same prompt.

One rule for a row that is alone, in its group or at a step that no other row of its group reaches: nothing stands for
what the prompt is worth, so its baseline is 0 and its reward is its advantage. All estimators that compare rows keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rl_core.algorithms.masks import fill_masked
from rl_core.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


STD_EPS = 1e-6


@dataclass(frozen=True, eq=False)
class GroupStatistics:
    """Statistics of each row's own group, over the usable rows of that group.

    Attributes:
        count: [B] int64, usable rows of the group.
        mean: [B] float64, 0.0 where the group has no usable row.
        std: [B] float64, unbiased (n - 1); 0.0 for fewer than two usable rows.
        varies: [B] bool, True where two usable rows of the group differ. Rounding of the mean never makes it True.
    """

    count: Tensor
    mean: Tensor
    std: Tensor
    varies: Tensor

    @property
    def alone(self) -> Tensor:
        """[B] bool, True where the group has one usable row."""
        return self.count == 1


def require_uid(uid: np.ndarray | None, estimator: str) -> np.ndarray:
    """The prompt of each row, for an estimator that compares the responses to one prompt.

    Args:
        uid: [B] array, or None.
        estimator: how the message calls it.

    Raises:
        DataError: there is none.
    """
    if uid is None:
        msg = f"{estimator} compares the responses to one prompt; found no uid column. Give each row its prompt's uid."
        raise DataError(msg)
    return uid


def group_index(uid: np.ndarray) -> tuple[np.ndarray, int]:
    """Number the groups.

    Args:
        uid: [B] array naming the prompt of each row: strings or integers, also of object dtype.

    Returns:
        [B] int64, the group of each row; and the number of groups.

    Raises:
        DataError: the entries cannot be compared with each other (strings mixed with numbers or None).
    """
    try:
        groups, index = np.unique(uid, return_inverse=True)
    except TypeError as error:
        kinds = sorted({type(entry).__name__ for entry in uid})
        msg = f"uid must hold entries of one type; found {', '.join(kinds)}. Fill the column with strings."
        raise DataError(msg) from error
    return index.reshape(-1), len(groups)


def group_statistics(scores: Tensor, usable: Tensor, uid: np.ndarray) -> GroupStatistics:
    """Mean, spread and size of each row's group.

    Computed in float64, so that the order of the rows does not show in the result.

    Args:
        scores: [B] float.
        usable: [B] bool; other rows enter no statistic, but are told those of their group.
        uid: [B] array naming the prompt of each row.

    Returns:
        One entry a row.

    Raises:
        DataError: uid entries cannot be compared with each other.
    """
    numbered, num_groups = group_index(uid)
    index = torch.as_tensor(numbered, device=scores.device)
    own, x = index[usable], scores[usable].double()

    def total(values: Tensor) -> Tensor:
        return values.new_zeros(num_groups).index_add_(0, own, values)

    count = torch.bincount(own, minlength=num_groups)
    mean = total(x) / count.clamp(min=1)
    variance = total((x - mean[own]).square()) / (count - 1).clamp(min=1)
    # Whichever row ends up as its group's representative, the group varies if any row differs from it.
    representative = torch.zeros_like(mean).index_put_((own,), x)
    varies = torch.bincount(own[x != representative[own]], minlength=num_groups) > 0
    return GroupStatistics(count[index], mean[index], variance.sqrt()[index], varies[index])


def above_baseline(scores: Tensor, baseline: Tensor, usable: Tensor, group: GroupStatistics) -> Tensor:
    """Scores minus a baseline that equals the score wherever all scores of a group are equal.

    Args:
        scores: [B] float.
        baseline: [B] float64, of each row.
        usable: [B] bool.
        group: statistics of ``scores`` over the usable rows.

    Returns:
        [B] float64: exactly 0 in a group whose scores are all equal, whatever its baseline rounds to; the score itself
        where a row is alone; 0 where unusable.
    """
    difference = scores.double() - baseline.masked_fill(group.alone, 0.0)
    return fill_masked(difference, usable & (group.alone | group.varies))


def relative_scores(scores: Tensor, usable: Tensor, uid: np.ndarray, *, by_std: bool) -> Tensor:
    """How far each score lies above its group's mean, in standard deviations if ``by_std``.

    Args:
        scores: [B] float.
        usable: [B] bool; the others enter no statistic.
        uid: [B] array naming the prompt of each row.
        by_std: divide by the unbiased standard deviation + 1e-6; 1 stands in for a row that is alone.

    Returns:
        [B] float64; see ``above_baseline``.

    Raises:
        DataError: uid entries cannot be compared with each other.
    """
    group = group_statistics(scores, usable, uid)
    relative = above_baseline(scores, group.mean, usable, group)
    return relative / (group.std.masked_fill(group.alone, 1.0) + STD_EPS) if by_std else relative


def leave_one_out_mean(scores: Tensor, group: GroupStatistics) -> Tensor:
    """Mean score of the other usable rows of each row's group.

    Args:
        scores: [B] float.
        group: statistics of ``scores``.

    Returns:
        [B] float64, 0.0 where there are no others; meaningless where a row is not usable itself.
    """
    others = group.count * group.mean - scores.double()
    return (others / (group.count - 1).clamp(min=1)).masked_fill(group.count < 2, 0.0)
