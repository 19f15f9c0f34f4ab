"""Statistics over groups: the rows that answer the same prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rl_core.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


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
