"""The digest that proves a tensor arrived as it was sent.

The sum of a tensor's bit patterns, read as integers, modulo 2**64. It is additive over shards (so ranks can add theirs),
independent of layout and device, exact for every dtype (NaN payloads and signed zeros included), and costs one pass over
the bytes. It does not notice values that swap places within a tensor; manifest, regions and re-scoring cover that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import torch
from torch import Tensor

from rl_core.contracts.weights import WeightSlice

_MODULUS = 1 << 64
_INTEGER_OF_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CHUNK: Final = 1 << 18
"""Integers that are widened at a time on a CPU: 2 MiB as int64, which stay in its cache."""


def bit_sum(tensor: Tensor) -> int:
    """Sum of the bit patterns of ``tensor``, in [0, 2**64)."""
    return bit_sums([tensor])[0]


def bit_sums(tensors: Sequence[Tensor]) -> list[int]:
    """``bit_sum`` of each tensor, with one wait for each device that they are on."""
    sums = [_sum(tensor) for tensor in tensors]
    found = [0] * len(sums)
    for device in {value.device for value in sums}:
        places = [place for place, value in enumerate(sums) if value.device == device]
        values: list[int] = torch.stack([sums[place] for place in places]).tolist()
        for place, value in zip(places, values, strict=True):
            found[place] = value % _MODULUS
    return found


def add_to_digest(digest: dict[str, int], slices: Iterable[WeightSlice]) -> None:
    """Add each slice's share to the entry of its tensor, in place."""
    parts = list(slices)
    for part, value in zip(parts, bit_sums([part.tensor for part in parts]), strict=True):
        digest[part.name] = (digest.get(part.name, 0) + value) % _MODULUS


def _sum(tensor: Tensor) -> Tensor:
    """[] int64, on the device of ``tensor``; overflow wraps, as the modulus wants it."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    integers = tensor.contiguous().view(_INTEGER_OF_SIZE[tensor.element_size()]).reshape(-1)
    if integers.is_cuda or integers.dtype == torch.int64 or integers.numel() <= 1:
        return integers.sum(dtype=torch.int64)
    # Torch's own sum into a wider type takes ten times as long on a CPU as widening first.
    parts = [part.to(torch.int64).sum() for part in integers.split(_CHUNK)]
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum()
