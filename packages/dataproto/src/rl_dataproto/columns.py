"""Row operations by column kind.

A batch has five kinds of columns: dense tensors ``[B, ...]``, jagged nested tensors, nested TensorDicts,
numpy arrays (mostly of objects) and handles. Everything that treats them differently is here; the batch
itself only loops over its columns. Jagged columns are open (:class:`~rl_dataproto.jagged.Jagged`) between
:func:`opened` and :func:`closed`, because torch makes a nested tensor slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict, TensorDictBase
from torch import Tensor

from rl_dataproto.errors import ColumnError, DataProtoTypeError, RowCountError
from rl_dataproto.handles import ColumnHandle
from rl_dataproto.jagged import Jagged, is_jagged
from rl_dataproto.memory import empty_like_rows, may_write_out

Column: TypeAlias = Tensor | TensorDictBase | np.ndarray | ColumnHandle


@dataclass(frozen=True, eq=False, slots=True)
class OpenDict:
    """The open form of a nested TensorDict.

    Attributes:
        columns: Its columns, open.
        num_rows: B, also when there is no column.
    """

    columns: dict[str, OpenColumn]
    num_rows: int

    def each(self, num_rows: int, operation: Callable[[OpenColumn], OpenColumn]) -> OpenDict:
        """The result of an operation on every column."""
        return OpenDict({name: operation(column) for name, column in self.columns.items()}, num_rows)


OpenColumn: TypeAlias = Tensor | np.ndarray | ColumnHandle | Jagged | OpenDict


def object_array(cells: Sequence[Any]) -> np.ndarray:
    """Make a one-dimensional object array with one cell an item.

    ``np.array(cells, dtype=object)`` would turn cells of equal length into a second dimension.
    """
    return np.fromiter(cells, dtype=object, count=len(cells))


def check_tensor(name: str, column: Any) -> None:
    """Refuse what cannot be a tensor column.

    Raises:
        DataProtoTypeError: Not a tensor.
        ColumnError: A tensor without rows, or a nested tensor that is not jagged.
    """
    if isinstance(column, TensorDictBase) and not isinstance(column, NonTensorStack):
        return
    if isinstance(column, (NonTensorStack, NonTensorData)):
        msg = f"Column {name!r} of the TensorDict holds no tensors: build the batch with DataProto.from_tensordict."
        raise DataProtoTypeError(msg)
    if not isinstance(column, Tensor):
        msg = f"Tensor column {name!r} is a {type(column).__name__}: pass a torch.Tensor, or put it in non_tensors."
        raise DataProtoTypeError(msg)
    if column.is_nested and column.layout != torch.jagged:
        msg = f"Tensor column {name!r} is a nested tensor with layout {column.layout}: use layout=torch.jagged."
        raise ColumnError(msg)
    if column.ndim == 0:
        msg = f"Tensor column {name!r} is a single number: columns have one entry a row, put it in meta_info."
        raise ColumnError(msg)


def as_non_tensor(name: str, column: Any) -> np.ndarray | ColumnHandle:
    """Turn what a caller passed as a non-tensor column into an array; lists become object arrays.

    Raises:
        DataProtoTypeError: Not an array, a handle, a list or a tuple.
        ColumnError: An array without rows.
    """
    if isinstance(column, np.ndarray):
        if column.ndim == 0:
            msg = f"Non-tensor column {name!r} is a single value: columns have one entry a row, put it in meta_info."
            raise ColumnError(msg)
        return column
    if isinstance(column, ColumnHandle):
        return column
    if isinstance(column, (list, tuple)):
        return object_array(column)
    msg = (
        f"Non-tensor column {name!r} is a {type(column).__name__}: "
        "pass a numpy array, a ColumnHandle, or a list with one entry a row."
    )
    raise DataProtoTypeError(msg)


def count_rows(column: OpenColumn) -> int:
    """Number of rows of a column."""
    if isinstance(column, (Jagged, OpenDict)):
        return column.num_rows
    return int(column.shape[0])


def opened(column: Column) -> OpenColumn:
    """The form of a column that the row operations work on."""
    if type(column) is Tensor:
        return column
    if isinstance(column, TensorDictBase):
        return OpenDict({name: opened(item) for name, item in column.items()}, int(column.batch_size[0]))
    return Jagged.of(column) if isinstance(column, Tensor) and is_jagged(column) else column


def closed(columns: Mapping[str, OpenColumn]) -> dict[str, Any]:
    """Close the columns of one batch; jagged ones with equal row lengths share one offsets tensor."""
    result: dict[str, Any] = {}
    known: list[Tensor] = []
    for name, column in columns.items():
        if isinstance(column, OpenDict):
            result[name] = TensorDict(closed(column.columns), batch_size=[column.num_rows])
            continue
        if not isinstance(column, Jagged):
            result[name] = column
            continue
        shared = next((item for item in known if _same_offsets(item, column.offsets)), None)
        if shared is None:
            known.append(column.offsets)
            result[name] = column.close()
        else:
            result[name] = Jagged(column.values, shared, column.dim).close()
    return result


def _same_offsets(left: Tensor, right: Tensor) -> bool:
    return left is right or (left.device == right.device and torch.equal(left, right))


def slice_rows(column: OpenColumn, start: int, stop: int) -> OpenColumn:
    """Rows ``start`` to ``stop`` as a view."""
    if isinstance(column, (Jagged, ColumnHandle)):
        return column.slice(start, stop)
    if isinstance(column, OpenDict):
        return column.each(stop - start, lambda item: slice_rows(item, start, stop))
    part: Tensor | np.ndarray = column[start:stop]
    return part


def cut_rows(column: OpenColumn, bounds: Sequence[int]) -> Sequence[OpenColumn]:
    """Consecutive parts that together are the column, as views.

    Args:
        column: An open column.
        bounds: Where the parts start, and where the last one ends; from 0 to the number of rows.
    """
    if isinstance(column, Tensor):
        # One call for all parts: a slice of a tensor costs as much as everything else about a small part.
        parts: Sequence[OpenColumn] = torch.split(column, [stop - start for start, stop in pairwise(bounds)])
        return parts
    if isinstance(column, Jagged):
        return column.cut(bounds)
    return [slice_rows(column, start, stop) for start, stop in pairwise(bounds)]


def take_rows(column: OpenColumn, numbers: np.ndarray) -> OpenColumn:
    """Rows by number (``int64``, from the front), in that order, repeats allowed; a copy."""
    if isinstance(column, (Jagged, ColumnHandle)):
        return column.take(numbers)
    if isinstance(column, np.ndarray):
        return column.take(numbers, axis=0)
    if isinstance(column, OpenDict):
        return column.each(len(numbers), lambda item: take_rows(item, numbers))
    index = torch.from_numpy(numbers).to(column.device)
    if not may_write_out(column):
        return column.index_select(0, index)
    out = empty_like_rows(column, (len(numbers), *column.shape[1:]))
    return torch.index_select(column, 0, index, out=out)


def repeat_rows(column: OpenColumn, times: int, interleave: bool) -> OpenColumn:
    """Repeat every row ``times`` times (aabb), or the whole column (abab); a copy."""
    if type(column) is Tensor and may_write_out(column):
        rows, *rest = column.shape
        shape, source = ((rows, times), column.unsqueeze(1)) if interleave else ((times, rows), column.unsqueeze(0))
        out = empty_like_rows(column, (*shape, *rest))
        return out.copy_(source).view(rows * times, *rest)
    numbers = np.arange(count_rows(column), dtype=np.int64)
    return take_rows(column, np.repeat(numbers, times) if interleave else np.tile(numbers, times))


def concat_rows(name: str, columns: Sequence[OpenColumn]) -> OpenColumn:
    """Put the rows of several columns behind each other.

    Args:
        name: Name of the column, for errors.
        columns: The same column of every part, at least one.

    Raises:
        ColumnError: The parts differ in kind, dtype, device or shape of a row; names the column, the part and
            both sides. Nothing is promoted silently, except numbers of different numpy dtypes.
    """
    first = columns[0]
    for number, column in enumerate(columns):
        if _kind(column) != _kind(first):
            msg = (
                f"Column {name!r} is {_kind(first)} in part 0 and {_kind(column)} in part {number}: "
                "let every part return the same kind of column."
            )
            raise ColumnError(msg)
    if len(columns) == 1:
        return first
    if isinstance(first, Jagged):
        return Jagged.concat(name, [column for column in columns if isinstance(column, Jagged)])
    if isinstance(first, ColumnHandle):
        return ColumnHandle.concat([column for column in columns if isinstance(column, ColumnHandle)])
    if isinstance(first, np.ndarray):
        return _concat_arrays(name, [column for column in columns if isinstance(column, np.ndarray)])
    if isinstance(first, OpenDict):
        return _concat_dicts(name, [column for column in columns if isinstance(column, OpenDict)])
    return _concat_tensors(name, [column for column in columns if isinstance(column, Tensor)])


def _kind(column: OpenColumn) -> str:
    if isinstance(column, Jagged):
        return "a jagged tensor"
    if isinstance(column, OpenDict):
        return "a nested TensorDict"
    if isinstance(column, ColumnHandle):
        return "a handle"
    return "a dense tensor" if isinstance(column, Tensor) else "a numpy array"


def _concat_tensors(name: str, columns: Sequence[Tensor]) -> Tensor:
    first = columns[0]
    traits = (first.shape[1:], first.dtype, first.device)
    for number, column in enumerate(columns):
        if (column.shape[1:], column.dtype, column.device) != traits:
            msg = (
                f"Column {name!r} has rows {_row(first)} in part 0 and {_row(column)} in part {number}: "
                "make shape, dtype and device equal, or send rows of different length as a jagged column."
            )
            raise ColumnError(msg)
    if not may_write_out(*columns):
        return torch.cat(list(columns))
    rows = sum(len(column) for column in columns)
    return torch.cat(list(columns), out=empty_like_rows(first, (rows, *first.shape[1:])))


def _row(column: Tensor) -> str:
    return f"{tuple(column.shape[1:])} {column.dtype} on {column.device}"


def _concat_dicts(name: str, columns: Sequence[OpenDict]) -> OpenDict:
    first = columns[0].columns
    for number, column in enumerate(columns):
        if column.columns.keys() != first.keys():
            msg = (
                f"Nested column {name!r} has keys {list(first)} in part 0 and {list(column.columns)} in part {number}: "
            )
            raise ColumnError(msg + "every part must have the same.")
    joined = {key: concat_rows(f"{name}.{key}", [column.columns[key] for column in columns]) for key in first}
    return OpenDict(joined, sum(column.num_rows for column in columns))


def _concat_arrays(name: str, columns: Sequence[np.ndarray]) -> np.ndarray:
    if any(column.shape[1:] != columns[0].shape[1:] for column in columns):
        if all(column.dtype == object for column in columns):
            return np.concatenate([object_array(list(column)) for column in columns])
        msg = f"Column {name!r} has arrays of shapes {[column.shape for column in columns]}: make the rows alike."
        raise ColumnError(msg)
    if len({_family(column.dtype) for column in columns}) > 1:
        # numpy would write numbers as text and text as objects; objects keep both as they are.
        columns = [column.astype(object) for column in columns]
    return np.concatenate(columns)


def _family(dtype: np.dtype[Any]) -> str:
    return "number" if dtype.kind in "biufc" else dtype.kind


def moved(column: OpenColumn, device: torch.device) -> OpenColumn:
    """The column on another device; arrays and handles stay where they are."""
    if isinstance(column, Jagged):
        return column.with_values(column.values.to(device))
    if isinstance(column, OpenDict):
        return column.each(column.num_rows, lambda item: moved(item, device))
    return column.to(device) if isinstance(column, Tensor) else column


def row_of(column: Column, number: int) -> Any:
    """One row: a tensor, a TensorDict, a cell, or a handle with one row."""
    if isinstance(column, TensorDictBase):
        return TensorDict({name: row_of(item, number) for name, item in column.items()}, batch_size=[])
    if isinstance(column, ColumnHandle):
        return column.slice(number, number + 1)
    if isinstance(column, Tensor) and is_jagged(column):
        return Jagged.of(column).row(number)
    return column[number]


def common_rows(columns: Mapping[str, OpenColumn], num_rows: int | None = None) -> int:
    """The one number of rows of all columns.

    Args:
        columns: Columns by name.
        num_rows: What it must be, where that is known from elsewhere.

    Returns:
        The number of rows; 0 without columns.

    Raises:
        RowCountError: Two columns disagree; names both and their counts.
    """
    known, origin = num_rows, "the batch"
    for name, column in columns.items():
        rows = count_rows(column)
        if known is None:
            known, origin = rows, f"column {name!r}"
        elif rows != known:
            msg = f"Column {name!r} has {rows} rows and {origin} has {known}: give every column one entry a row."
            raise RowCountError(msg)
    return known or 0
