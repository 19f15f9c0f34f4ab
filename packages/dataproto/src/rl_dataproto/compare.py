"""Deep comparison in which a missing value equals a missing value.

``NaN != NaN`` and ``array == array`` is an array, so plain ``==`` says that a column differs from its own
copy as soon as a cell is missing, and raises as soon as a cell is an array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor

from rl_dataproto.columns import Column
from rl_dataproto.handles import ColumnHandle
from rl_dataproto.jagged import Jagged, is_jagged


def deep_equal(left: Any, right: Any) -> bool:
    """Whether two values are equal, all the way down.

    NaN equals NaN. Arrays and tensors are equal when shape, dtype and values are. ``1`` equals ``1.0``,
    ``True`` does not equal ``1``, a list does not equal a tuple. Dataclasses are compared field by field.
    Values that contain themselves are equal when they have the same shape.

    Args:
        left: Any value.
        right: Any value.
    """
    todo = [(left, right)]
    seen: set[tuple[int, int]] = set()
    while todo:
        a, b = todo.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        if isinstance(a, (str, Number)) or isinstance(b, Number) or a is None or b is None:
            if not _same_leaf(a, b):
                return False
            continue
        seen.add((id(a), id(b)))
        parts = _parts(a, b)
        if parts is None:
            return False
        todo.extend(parts)
    return True


def _same_leaf(a: Any, b: Any) -> bool:
    if isinstance(a, (bool, np.bool_)) or isinstance(b, (bool, np.bool_)):
        return isinstance(a, (bool, np.bool_)) and isinstance(b, (bool, np.bool_)) and bool(a) == bool(b)
    if isinstance(a, Number) and isinstance(b, Number):
        return bool(a == b) or bool(a != a and b != b)
    return type(a) is type(b) and bool(a == b)


def _parts(a: Any, b: Any) -> list[tuple[Any, Any]] | None:
    """What remains to be compared for two containers to be equal; None when they already differ."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape or (a.dtype == object) != (b.dtype == object):
            return None
        if a.dtype == object:
            cells, others = a.ravel().tolist(), b.ravel().tolist()
            if {*map(type, cells), *map(type, others)} == {str}:
                # Columns of text are the common case, and text has no missing values.
                return [] if cells == others else None
            return list(zip(cells, others, strict=True))
        return [] if _equal_arrays(a, b) else None
    if isinstance(a, (Tensor, TensorDictBase, ColumnHandle)) or isinstance(b, (Tensor, TensorDictBase, ColumnHandle)):
        return [] if type(a) is type(b) and equal_columns(a, b) else None
    if type(a) is not type(b):
        return None
    if isinstance(a, Mapping):
        return [(a[key], b[key]) for key in a] if a.keys() == b.keys() else None
    if isinstance(a, (list, tuple)):
        return list(zip(a, b, strict=True)) if len(a) == len(b) else None
    if dataclasses.is_dataclass(a):
        return [(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a)]
    return [] if bool(np.all(a == b)) else None


def _equal_arrays(a: np.ndarray, b: np.ndarray) -> bool:
    if _same_memory_array(a, b):
        return True
    if a.dtype != b.dtype and (a.dtype.kind != b.dtype.kind or a.dtype.kind not in "US"):
        return False
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fcmM"))


def _same_memory_array(a: np.ndarray, b: np.ndarray) -> bool:
    return a.ctypes.data == b.ctypes.data and a.dtype == b.dtype and a.strides == b.strides


def equal_columns(left: Column, right: Column) -> bool:
    """Whether two columns hold the same rows: kind, shape, dtype and values, NaN equal to NaN.

    Handles are equal when they name the same rows of equal sources; nothing is read.
    """
    if isinstance(left, ColumnHandle) or isinstance(right, ColumnHandle):
        return isinstance(left, ColumnHandle) and isinstance(right, ColumnHandle) and left.equals(right)
    if isinstance(left, TensorDictBase) or isinstance(right, TensorDictBase):
        if not isinstance(left, TensorDictBase) or not isinstance(right, TensorDictBase):
            return False
        return set(left.keys()) == set(right.keys()) and all(
            deep_equal(left.get(key), right.get(key))
            for key in left.keys()  # noqa: SIM118 - iterating a TensorDict gives rows
        )
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        if is_jagged(left) or is_jagged(right):
            return is_jagged(left) and is_jagged(right) and _equal_jagged(Jagged.of(left), Jagged.of(right))
        return _equal_tensors(left, right)
    return isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and deep_equal(left, right)


def _equal_jagged(a: Jagged, b: Jagged) -> bool:
    return a.dim == b.dim and _equal_tensors(a.offsets, b.offsets) and _equal_tensors(a.values, b.values)


def _equal_tensors(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.device != b.device:
        b = b.to(a.device)
    if a.data_ptr() == b.data_ptr() and a.stride() == b.stride():
        return True
    if _is_plain(a) and _is_plain(b) and _equal_bits(a, b):
        return True
    if not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b)
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def _is_plain(column: Tensor) -> bool:
    return column.device.type == "cpu" and column.is_contiguous() and not column.is_conj() and not column.is_neg()


def _equal_bits(a: Tensor, b: Tensor) -> bool:
    """Whether the memory is the same, read in the widest numbers: faster than values, and NaN is like any other."""
    left, right = (side.detach().reshape(-1).view(torch.uint8).numpy() for side in (a, b))
    if left.nbytes % 8 == 0:
        left, right = left.view(np.int64), right.view(np.int64)
    return bool(np.array_equal(left, right))


def first_difference(left: Column, right: Column) -> str:
    """Say where two columns of equal length differ first, for an error message."""
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        if (is_jagged(left), left.dtype) != (is_jagged(right), right.dtype):
            return f"one side is {_kind(left)}, the other {_kind(right)}"
        if not is_jagged(left) and left.shape != right.shape:
            return f"shapes are {tuple(left.shape)} and {tuple(right.shape)}"
        rows_left = Jagged.of(left).rows() if is_jagged(left) else left
        rows_right = Jagged.of(right).rows() if is_jagged(right) else right
        pairs = zip(rows_left, rows_right, strict=True)
    elif isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        if left.shape != right.shape or (left.dtype == object) != (right.dtype == object):
            return f"one side is {left.shape} {left.dtype}, the other {right.shape} {right.dtype}"
        pairs = zip(left, right, strict=True)
    elif type(left) is not type(right):
        return f"one side is a {type(left).__name__}, the other a {type(right).__name__}"
    else:
        return "their contents differ"
    for number, (a, b) in enumerate(pairs):
        if not deep_equal(a, b):
            return f"row {number} is {brief(a)} on one side and {brief(b)} on the other"
    return "their contents differ"


def _kind(column: Tensor) -> str:
    return f"{'jagged' if is_jagged(column) else 'dense'} {column.dtype}"


def brief(value: Any) -> str:
    """The repr of a value, cut to a length that fits a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
