"""Operations that change the shape of columns, and the row numbers of padding and repeating."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl_dataproto.assemble import columns_of, tensordict_of
from rl_dataproto.base import Keys, name_list
from rl_dataproto.columns import OpenColumn, repeat_rows
from rl_dataproto.errors import ColumnError, DataProtoTypeError, RowCountError, UnevenChunkError, missing
from rl_dataproto.meta import copy_meta

if TYPE_CHECKING:
    from rl_dataproto.batch import DataProto


def repeat_counts(counts: Sequence[int] | np.ndarray | Tensor, num_rows: int) -> np.ndarray:
    """Check the counts of a repeat by row.

    Args:
        counts: List, tuple, or one-dimensional array or tensor of integers.
        num_rows: Rows of the batch.

    Returns:
        ``[B]`` ``int64``.

    Raises:
        RowCountError: Another number of counts than rows, or a negative one.
        DataProtoTypeError: Not integers.
    """
    array = counts.detach().cpu().numpy() if isinstance(counts, Tensor) else np.asarray(counts)
    if array.size and array.dtype.kind not in "iu":
        msg = f"Repeat counts are of dtype {array.dtype}: use integers."
        raise DataProtoTypeError(msg)
    if array.shape != (num_rows,):
        msg = f"Repeat counts of shape {array.shape} were given for {num_rows} rows: give one count a row."
        raise RowCountError(msg)
    if array.size and array.min() < 0:
        msg = f"Repeat count {int(array.min())} was given for row {int(array.argmin())}: use 0 or more."
        raise RowCountError(msg)
    return array.astype(np.int64)


def padding_numbers(num_rows: int, padding_size: int, candidate: str) -> np.ndarray:
    """Row numbers of a batch with copies of one row behind it; see ``DataProto.padding``."""
    if candidate not in ("", "first", "last"):
        msg = f"padding_candidate={candidate!r} was asked: use 'first' or 'last'."
        raise DataProtoTypeError(msg)
    if padding_size < 0 or (padding_size and not num_rows):
        msg = f"Padding by {padding_size} rows was asked of a batch with {num_rows} rows: there must be a row to copy."
        raise RowCountError(msg)
    source = 0 if candidate == "first" else num_rows - 1
    return np.concatenate([np.arange(num_rows, dtype=np.int64), np.full(padding_size, source, np.int64)])


def unfold_columns(
    batch: TensorDictBase | None,
    non_tensor_batch: Mapping[str, Any],
    num_rows: int,
    n_split: int,
    split_keys: Keys | None,
) -> tuple[TensorDict | None, dict[str, Any]]:
    """Cut the second dimension of some columns into rows; see ``DataProto.unfold_column_chunks``."""
    if n_split < 1:
        msg = f"n_split={n_split} was asked: use 1 or more."
        raise RowCountError(msg)
    tensors = columns_of(batch)
    names = set(tensors) if split_keys is None else set(name_list(split_keys))
    for name in sorted(names):
        if name not in tensors and name not in non_tensor_batch:
            raise missing(name, "column", [*tensors, *non_tensor_batch])

    def unfolded(name: str, column: OpenColumn) -> OpenColumn:
        return _cut(name, column, n_split) if name in names else repeat_rows(column, n_split, interleave=True)

    others = {name: unfolded(name, column) for name, column in non_tensor_batch.items()}
    if batch is None:
        return None, others
    columns = {name: unfolded(name, column) for name, column in tensors.items()}
    return tensordict_of(columns, num_rows * n_split, batch.device), others


def _cut(name: str, column: OpenColumn, n_split: int) -> OpenColumn:
    if not isinstance(column, (Tensor, np.ndarray)) or column.ndim < 2 or column.shape[1] % n_split:
        shape = list(column.shape) if isinstance(column, (Tensor, np.ndarray)) else type(column).__name__
        msg = f"Column {name!r} ({shape}) was to be cut into {n_split} pieces a row: "
        raise ColumnError(msg + f"it needs a dense second dimension that {n_split} divides.")
    rows, width, *rest = column.shape
    return column.reshape(rows * n_split, width // n_split, *rest)


def fold_batch_dim(data: DataProto, new_batch_size: int) -> DataProto:
    """Group rows: every column ``[B, ...]`` becomes ``[new_batch_size, B // new_batch_size, ...]``; views.

    Args:
        data: A batch of dense columns; it stays as it is.
        new_batch_size: Number of groups of consecutive rows.

    Raises:
        UnevenChunkError: ``new_batch_size`` does not divide the rows.
        ColumnError: A jagged or handle column, which has no second dimension.
    """
    rows = len(data)
    if new_batch_size < 1 or rows % new_batch_size:
        msg = f"{rows} rows were to be folded into {new_batch_size} groups: use a number that divides {rows}."
        raise UnevenChunkError(msg)
    group = rows // new_batch_size
    return _reshaped(data, new_batch_size, 1, (new_batch_size, group))


def unfold_batch_dim(data: DataProto, batch_dims: int = 2) -> DataProto:
    """Ungroup rows: the first ``batch_dims`` dimensions of every column become its rows; views where possible.

    Args:
        data: A batch whose columns agree in these dimensions; it stays as it is.
        batch_dims: How many leading dimensions become rows.

    Raises:
        ColumnError: The columns do not agree in these dimensions, or a column has too few or is ragged.
    """
    every = {**columns_of(data.batch), **data.non_tensor_batch}
    leading = {
        name: tuple(column.shape[:batch_dims]) if isinstance(column, (Tensor, np.ndarray)) else ()
        for name, column in every.items()
    }
    if len(set(leading.values())) > 1 or any(len(shape) < batch_dims for shape in leading.values()):
        msg = (
            f"The first {batch_dims} dimensions were to become rows, columns have {leading}: make them equal and dense."
        )
        raise ColumnError(msg)
    shape = next(iter(leading.values()), (len(data),))
    rows = int(np.prod(shape, dtype=np.int64))
    return _reshaped(data, rows, batch_dims, (rows,))


def _reshaped(data: DataProto, rows: int, old_dims: int, new_shape: tuple[int, ...]) -> DataProto:
    def reshaped(name: str, column: OpenColumn) -> OpenColumn:
        if not isinstance(column, (Tensor, np.ndarray)):
            msg = f"Column {name!r} is a {type(column).__name__}, only dense columns can be folded: select the others."
            raise ColumnError(msg)
        return column.reshape(*new_shape, *column.shape[old_dims:])

    batch = None
    if data.batch is not None:
        columns = {name: reshaped(name, column) for name, column in columns_of(data.batch).items()}
        batch = tensordict_of(columns, rows, data.batch.device)
    others = {name: reshaped(name, column) for name, column in data.non_tensor_batch.items()}
    return data._of(batch, others, copy_meta(data.meta_info))
