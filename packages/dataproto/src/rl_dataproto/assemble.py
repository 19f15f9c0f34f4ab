"""Putting columns together: TensorDicts from columns, one batch from many, two column sets to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase

from rl_dataproto.columns import Column, OpenColumn, closed, concat_rows, opened
from rl_dataproto.compare import equal_columns, first_difference
from rl_dataproto.errors import ColumnError, ConflictError, DataProtoTypeError, RowCountError
from rl_dataproto.meta import merge_meta

if TYPE_CHECKING:
    from rl_dataproto.base import BatchBase


class Unbuilt:
    """Tensor columns that nobody has looked at as a TensorDict yet.

    A batch on its way to a worker, and one that arrives only to be joined, is never looked at; building the TensorDict and its
    jagged tensors is most of what cutting it into many small parts would cost.
    """

    __slots__ = ("columns", "device", "num_rows")

    def __init__(self, columns: dict[str, OpenColumn], num_rows: int, device: torch.device | None) -> None:
        """Keep the columns; arguments as for ``tensordict_of``."""
        self.columns = columns
        self.num_rows = num_rows
        self.device = device

    def build(self) -> TensorDict:
        """The TensorDict."""
        return tensordict_of(self.columns, self.num_rows, self.device)


def columns_of(batch: TensorDictBase | None) -> dict[str, OpenColumn]:
    """The columns of a TensorDict by name, open for row operations."""
    return {} if batch is None else {name: opened(column) for name, column in batch.items()}


def tensordict_of(columns: Mapping[str, OpenColumn], num_rows: int, device: torch.device | None = None) -> TensorDict:
    """Build a TensorDict with one batch dimension; columns are not copied.

    Args:
        columns: Open columns by name.
        num_rows: B, also when there is no column.
        device: The device that all columns are known to be on, or None.
    """
    return TensorDict(closed(columns), batch_size=[num_rows], device=device)


def common_device(left: TensorDictBase | None, right: TensorDictBase | None) -> torch.device | None:
    """The device both declare (a missing side has no say), or None."""
    if left is None or right is None:
        one = left if right is None else right
        return None if one is None else one.device
    return left.device if left.device == right.device else None


def joined(left: Mapping[str, Column], right: Mapping[str, Column]) -> dict[str, Any]:
    """Columns of both sides, which describe the same rows.

    Raises:
        ConflictError: A name is on both sides with different columns; names it and the first difference.
    """
    result: dict[str, Any] = dict(left)
    for name, column in right.items():
        if name in result and not equal_columns(result[name], column):
            difference = first_difference(result[name], column)
            msg = f"Column {name!r} is on both sides of the union and differs: {difference}; drop or rename it on one."
            raise ConflictError(msg)
        result.setdefault(name, column)
    return result


def union_tensor_dict(tensor_dict1: TensorDictBase, tensor_dict2: TensorDictBase) -> TensorDict:
    """Join the columns of two TensorDicts; both stay as they are.

    Args:
        tensor_dict1: One batch dimension.
        tensor_dict2: The same batch size.

    Raises:
        RowCountError: Different batch sizes.
        ConflictError: A column is on both sides and differs; NaN equals NaN.
    """
    if tensor_dict1.batch_size != tensor_dict2.batch_size:
        msg = f"A union of batch sizes {list(tensor_dict1.batch_size)} and {list(tensor_dict2.batch_size)} was asked: "
        raise RowCountError(msg + "both sides must hold the same rows.")
    columns = joined(dict(tensor_dict1.items()), dict(tensor_dict2.items()))
    device = common_device(tensor_dict1, tensor_dict2)
    return tensordict_of({name: opened(column) for name, column in columns.items()}, tensor_dict1.batch_size[0], device)


def union_numpy_dict(tensor_dict1: Mapping[str, Any], tensor_dict2: Mapping[str, Any]) -> dict[str, Any]:
    """Join two dictionaries of non-tensor columns; both stay as they are.

    Raises:
        ConflictError: A column is on both sides and differs; NaN and None equal themselves, cells are
            compared all the way down.
    """
    return joined(tensor_dict1, tensor_dict2)


def concat_parts(parts: Sequence[BatchBase]) -> tuple[Unbuilt | None, dict[str, Any], dict[str, Any]]:
    """Concatenate batches by column and join their metadata.

    Args:
        parts: At least one batch. One without columns and rows adds only metadata.

    Returns:
        Tensor columns (None when no part has a TensorDict), non-tensor columns, metadata.
    """
    for number, part in enumerate(parts):
        if not hasattr(part, "non_tensor_batch"):
            msg = f"concat got a {type(part).__name__} as part {number}: every part must be a DataProto."
            raise DataProtoTypeError(msg)
    meta = merge_meta([part.meta_info for part in parts])
    # A part that carries nothing says nothing about the columns, unless no part does.
    full = [(number, part) for number, part in enumerate(parts) if len(part) or part.num_columns] or [(0, parts[0])]
    tensors = [part._open_columns() for _, part in full]
    others: list[dict[str, Any]] = [part.non_tensor_batch for _, part in full]
    _check_names("tensor", [number for number, _ in full], tensors)
    _check_names("non-tensor", [number for number, _ in full], others)
    batch = None
    with_tensors = [part for _, part in full if part._tensors is not None]
    if with_tensors:
        columns = {name: concat_rows(name, [part[name] for part in tensors]) for name in tensors[0]}
        devices = {part._device() for part in with_tensors}
        device = devices.pop() if len(devices) == 1 else None
        batch = Unbuilt(columns, sum(len(part) for _, part in full), device)
    non_tensors = {name: concat_rows(name, [part[name] for part in others]) for name in others[0]}
    return batch, non_tensors, meta


def _check_names(kind: str, numbers: Sequence[int], parts: Sequence[Mapping[str, Any]]) -> None:
    first = parts[0].keys()
    for number, part in zip(numbers, parts, strict=True):
        if part.keys() != first:
            lacks, adds = sorted(first - part.keys()), sorted(part.keys() - first)
            msg = f"Part {number} of concat lacks {kind} columns {lacks} and adds {adds} against part {numbers[0]}: "
            raise ColumnError(msg + "every part must have the same columns.")
