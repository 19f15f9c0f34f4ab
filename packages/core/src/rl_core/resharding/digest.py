"""The digest that proves a tensor arrived as it was sent.

The sum of a tensor's bit patterns, read as integers, modulo 2**64. It is additive over shards (so ranks can add theirs),
independent of layout and device, exact for every dtype (NaN payloads and signed zeros included), and costs one pass over
the bytes. It does not notice values that swap places within a tensor; manifest, regions and re-scoring cover that.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from rl_core.contracts.weights import WeightSlice

_MODULUS = 1 << 64
_INTEGER_OF_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bit_sum(tensor: Tensor) -> int:
    """Sum of the bit patterns of ``tensor``, in [0, 2**64)."""
    if tensor.numel() == 0:
        return 0
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    integers = tensor.detach().contiguous().view(_INTEGER_OF_SIZE[tensor.element_size()])
    return int(integers.sum(dtype=torch.int64).item()) % _MODULUS


def add_to_digest(digest: dict[str, int], slices: Iterable[WeightSlice]) -> None:
    """Add each slice's share to the entry of its tensor, in place."""
    for part in slices:
        digest[part.name] = (digest.get(part.name, 0) + bit_sum(part.tensor)) % _MODULUS
