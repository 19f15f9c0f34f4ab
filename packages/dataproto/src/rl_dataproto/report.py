"""Batches as text, for people, and whether two of them are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tensordict import TensorDictBase
from torch import Tensor

from rl_dataproto.columns import Column
from rl_dataproto.compare import deep_equal, equal_columns
from rl_dataproto.handles import ColumnHandle
from rl_dataproto.jagged import Jagged, is_jagged

if TYPE_CHECKING:
    from rl_dataproto.base import BatchBase


def equal_batches(left: BatchBase, right: BatchBase) -> bool:
    """Whether two batches have equal rows, columns and metadata; missing values equal themselves."""
    if len(left) != len(right) or not deep_equal(left.meta_info, right.meta_info):
        return False
    mine, theirs = (
        {**({} if side.batch is None else dict(side.batch.items())), **side.non_tensor_batch} for side in (left, right)
    )
    return mine.keys() == theirs.keys() and all(equal_columns(column, theirs[name]) for name, column in mine.items())


def column_bytes(column: Column) -> int:
    """Memory of a column in bytes; of an object array or a handle only the references and row numbers."""
    if isinstance(column, TensorDictBase):
        return sum(column_bytes(item) for item in column.values())
    if isinstance(column, Tensor) and is_jagged(column):
        opened = Jagged.of(column)
        return int(opened.values.nbytes + opened.offsets.nbytes)
    return int(column.rows.nbytes) if isinstance(column, ColumnHandle) else int(column.nbytes)


def size_line(data: BatchBase, prefix: str) -> str:
    """The memory of the tensor and non-tensor columns in GiB, as one line."""
    tensors = sum(column_bytes(column) for column in ([] if data.batch is None else data.batch.values()))
    others = sum(column_bytes(column) for column in data.non_tensor_batch.values())
    text = f"tensor columns {tensors / 2**30:.6f} GiB, non-tensor columns {others / 2**30:.6f} GiB"
    return f"{prefix}, {text}" if prefix else text


def describe(data: BatchBase) -> str:
    """Every column and metadata key with its shape and type, one a line."""
    lines = ["batch"]
    lines += [f"  {name}: {_column(column)}" for name, column in ([] if data.batch is None else data.batch.items())]
    lines.append("non_tensor_batch")
    lines += [f"  {name}: {_column(column)}" for name, column in data.non_tensor_batch.items()]
    lines.append("meta_info")
    lines += [f"  {name}: {_type(value)}" for name, value in data.meta_info.items()]
    return "\n".join(lines)


def summary(data: BatchBase) -> str:
    """One line: rows, columns, metadata keys."""
    tensors = ", ".join(f"{name}: {_column(c)}" for name, c in ([] if data.batch is None else data.batch.items()))
    others = ", ".join(f"{name}: {_column(c)}" for name, c in data.non_tensor_batch.items())
    return (
        f"{type(data).__name__}({len(data)} rows, batch={{{tensors}}}, non_tensor_batch={{{others}}}, "
        f"meta_info={list(data.meta_info)})"
    )


def _column(column: Any) -> str:
    if isinstance(column, Tensor):
        shape = ", ".join("j" if not isinstance(size, int) else str(size) for size in column.shape)
        return f"({shape}) {str(column.dtype).removeprefix('torch.')} {column.device}"
    if isinstance(column, np.ndarray):
        return f"ndarray({', '.join(map(str, column.shape))}) {column.dtype}"
    if isinstance(column, TensorDictBase):
        return f"TensorDict({', '.join(map(str, column.keys()))})"
    return repr(column)


def _type(value: Any, depth: int = 0) -> str:
    name = type(value).__name__
    if isinstance(value, (Tensor, np.ndarray)):
        return _column(value)
    if not isinstance(value, (list, tuple, dict)) or not value or depth == 3:
        return name
    if isinstance(value, dict):
        key, item = next(iter(value.items()))
        return f"{name}[{_type(key, depth + 1)}: {_type(item, depth + 1)}]"
    return f"{name}[{' | '.join(sorted({_type(item, depth + 1) for item in value[:3]}))}]"
