"""Position ids of padded and of packed rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.errors import ShapeError

if TYPE_CHECKING:
    from torch import Tensor


def position_ids(attention_mask: Tensor) -> Tensor:
    """Number the tokens of each sequence from 0, padding not counted.

    Args:
        attention_mask: [B, L] bool or int, 0 at padding and 1 at tokens. A packed row numbers its sequences 1, 2, 3,
            ... from left to right instead.

    Returns:
        [B, L] int64. Padding gets 0 at the left and the last id at the right; models ignore it.

    Raises:
        ShapeError: the mask is not of rank 2.
    """
    if attention_mask.dim() != 2:
        msg = f"attention_mask must have rank 2, [B, L]; found shape {tuple(attention_mask.shape)}."
        raise ShapeError(msg)
    if attention_mask.numel() == 0:
        return torch.zeros(attention_mask.shape, dtype=torch.int64, device=attention_mask.device)
    index = (attention_mask > 0).long().cumsum(dim=1) - 1
    sequence = attention_mask.long().cummax(dim=1).values
    starts = sequence > torch.nn.functional.pad(sequence[:, :-1], (1, 0))
    first = torch.where(starts, index, 0).cummax(dim=1).values
    return (index - first).clamp(min=0)
