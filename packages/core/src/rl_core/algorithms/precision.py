"""The precision in which algorithms compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def widen(tensor: Tensor) -> Tensor:
    """Return the tensor in float32, or unchanged when it is float64.

    Half precision holds a log-prob of -120 only to 0.5, so differences of log-probs are taken after widening.

    Args:
        tensor: any shape, any real dtype.

    Returns:
        The same shape in float32 or float64; gradients flow back in the original dtype.
    """
    return tensor if tensor.dtype == torch.float64 else tensor.float()
