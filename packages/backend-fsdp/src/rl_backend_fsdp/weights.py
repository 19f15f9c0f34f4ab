"""Whole tensors from shards, a bucket at a time.

FSDP2 cuts a tensor's first dimension into equal pieces, the last ones shorter or empty::

    [10, H] over 4 ranks:   rows 0-2 | 3-5 | 6-8 | 9
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from rl_core.contracts.weights import WeightSpec
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor


class WeightGatherer:
    """Gathers tensors over the ranks that share a copy of the model, all those of one type in one exchange."""

    def __init__(self, group: ProcessGroup, device: torch.device) -> None:
        """Gather over ``group``, onto ``device``."""
        self._group = group
        self._size = group.size()
        self._device = device

    def gather(self, specs: Sequence[WeightSpec], tensors: Sequence[Tensor]) -> list[Tensor]:
        """Whole tensors on every rank, in the types that ``specs`` promise. Collective.

        Args:
            specs: of the tensors.
            tensors: sharded, or whole on every rank.
        """
        whole: list[Tensor] = [torch.empty(0)] * len(specs)
        by_dtype: dict[torch.dtype, list[int]] = {}
        for number, (spec, tensor) in enumerate(zip(specs, tensors, strict=True)):
            dtype: torch.dtype = getattr(torch, spec.dtype)
            if isinstance(tensor, DTensor) and self._size > 1:
                by_dtype.setdefault(dtype, []).append(number)
            else:
                local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
                whole[number] = local.detach().to(self._device, dtype)
        for dtype, numbers in by_dtype.items():
            gathered = self._gather_same([tensors[number] for number in numbers], dtype)
            for number, tensor in zip(numbers, gathered, strict=True):
                whole[number] = tensor
        return whole

    def _gather_same(self, tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
        pieces = [_piece_size(tensor.shape, self._size) for tensor in tensors]
        device = self._device  # of the exchange; shards may be kept on the host
        own = torch.zeros(sum(pieces), dtype=dtype, device=device)
        start = 0
        for tensor, size in zip(tensors, pieces, strict=True):
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            own[start : start + local.numel()].copy_(local.detach().reshape(-1))
            start += size
        everyone = torch.empty(self._size, len(own), dtype=dtype, device=device)
        dist.all_gather(list(everyone.unbind()), own, group=self._group)
        whole = []
        start = 0
        for tensor, size in zip(tensors, pieces, strict=True):
            flat = everyone[:, start : start + size].reshape(-1)
            whole.append(flat[: tensor.numel()].view(tensor.shape))
            start += size
        return whole


def owner_ranks(tensor: Tensor, shards: int, world_size: int) -> tuple[int, ...]:
    """Ranks that hold a part of ``tensor``: all of them, unless it has too few rows to go round.

    Args:
        tensor: sharded, or whole on every rank.
        shards: consecutive ranks that share one copy of the model.
        world_size: ranks of all copies.
    """
    if not isinstance(tensor, DTensor) or not tensor.dim():
        return tuple(range(world_size))
    rows = -(-tensor.shape[0] // shards)
    return tuple(rank for rank in range(world_size) if rank % shards * rows < tensor.shape[0])


def _piece_size(shape: torch.Size, world_size: int) -> int:
    """Entries of the largest piece."""
    rows = -(-shape[0] // world_size)
    return rows * (shape.numel() // shape[0] if shape[0] else 0)
