"""Shape and dtype checks that every algorithm makes before its first equation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rl_core.errors import ShapeError

if TYPE_CHECKING:
    from torch import Tensor


def require_mask(mask: Tensor, name: str = "response_mask") -> None:
    """Refuse a mask that is not a bool tensor of rank 2.

    Args:
        mask: [B, T] bool, True where the policy emitted the token.
        name: how the message calls it.

    Raises:
        ShapeError: another rank, or another dtype.
    """
    if mask.dim() != 2:
        msg = f"{name} must have rank 2, [B, T]; found shape {tuple(mask.shape)}. Pass one row per response."
        raise ShapeError(msg)
    if mask.dtype != torch.bool:
        msg = f"{name} must be a bool tensor; found {mask.dtype}. Convert it with .bool()."
        raise ShapeError(msg)


def require_same_shape(name: str, tensor: Tensor, reference_name: str, reference: Tensor) -> None:
    """Refuse a tensor whose shape differs from the reference's; nothing is ever broadcast.

    Args:
        name: how the message calls ``tensor``.
        tensor: any shape.
        reference_name: how the message calls ``reference``.
        reference: the tensor whose shape is asked for.

    Raises:
        ShapeError: the shapes differ; the message holds both.
    """
    if tensor.shape != reference.shape:
        msg = (
            f"{name} must have the shape of {reference_name}; found {name} {tuple(tensor.shape)} and "
            f"{reference_name} {tuple(reference.shape)}. Pad or cut both to one response length."
        )
        raise ShapeError(msg)
