"""Which rank holds which numbers of which tensor.

::

    stages 1, 2   the tensors of a group behind one another, the whole cut into equal parts, one a rank

        |  embedding  |  q  | k |  v  |    mlp      |..|
        |      rank 0       |       rank 1             |        .. padding

    stage 3       each tensor cut into equal parts of its own; a rank's parts behind one another

        rank 0   | embedding 0 | q 0 | k 0 | ...
        rank 1   | embedding 1 | q 1 | k 1 | ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive numbers of one tensor within this rank's part of one group.

    Attributes:
        name: of the tensor.
        start: first number, of the tensor read row by row.
        length: how many.
        group: which flat tensor of the rank.
        offset: where in it.
    """

    name: str
    start: int
    length: int
    group: int
    offset: int


def flat_weights(optimizer: Any, stage: int) -> list[Tensor]:
    """The float32 weights that this rank's optimizer changes, a flat tensor for each group."""
    found: list[Tensor] = (
        optimizer.fp32_partitioned_groups_flat if stage == 3 else optimizer.single_partition_of_fp32_groups
    )
    return found


def pieces(optimizer: Any, stage: int, names: Mapping[int, str], rank: int) -> list[Piece]:
    """What of each trained tensor is in ``flat_weights`` of this rank.

    Args:
        optimizer: DeepSpeed's.
        stage: of ZeRO.
        names: ``id`` of a parameter -> its name.
        rank: this one.
    """
    cut = _cut_apart if stage == 3 else _cut_together
    return [piece for piece in cut(optimizer, names, rank) if piece.length > 0]


def _cut_together(optimizer: Any, names: Mapping[int, str], rank: int) -> Iterator[Piece]:
    for group, parameters in enumerate(optimizer.round_robin_bit16_groups):
        size = int(optimizer.partition_size[group])
        low, high = rank * size, (rank + 1) * size
        for parameter, offset in zip(parameters, optimizer.round_robin_bit16_offsets[group], strict=True):
            start, end = max(offset, low), min(offset + parameter.numel(), high)
            yield Piece(names[id(parameter)], start - offset, end - start, group, start - low)


def _cut_apart(optimizer: Any, names: Mapping[int, str], rank: int) -> Iterator[Piece]:
    for group, parameters in enumerate(optimizer.fp16_groups):
        offset = 0
        for parameter in parameters:
            size = int(parameter.partition_numel())
            start = rank * size
            yield Piece(names[id(parameter)], start, min(size, parameter.ds_numel - start), group, offset)
            offset += size
