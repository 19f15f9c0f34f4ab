"""Row numbers: one place that turns every way of naming rows into an ``int64`` array."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_dataproto.errors import DataProtoTypeError, RowIndexError

RowsLike = Sequence[int] | Sequence[bool] | np.ndarray | Tensor


def row_number(index: Any, num_rows: int) -> int:
    """Turn one possibly negative row number into its place from the front.

    Raises:
        RowIndexError: The number lies outside the batch.
    """
    number = operator.index(index)
    if not -num_rows <= number < num_rows:
        msg = f"Row {number} was asked of a batch with {num_rows} rows: use {-num_rows} to {num_rows - 1}."
        raise RowIndexError(msg)
    return number % num_rows


def row_numbers(index: RowsLike, num_rows: int) -> np.ndarray:
    """Turn row numbers or a boolean mask into row numbers counted from the front.

    Args:
        index: A list, tuple, array or tensor of one dimension. Booleans are a mask with one entry a row,
            integers are row numbers, which may be negative and may repeat.
        num_rows: Rows of the batch.

    Returns:
        Row numbers, ``int64``, one dimension, a fresh array.

    Raises:
        DataProtoTypeError: The entries are neither booleans nor integers, or it cannot be told which.
        RowIndexError: A number lies outside the batch, or the mask has another length than the batch.
    """
    array = _as_array(index)
    if array.ndim != 1:
        msg = (
            f"Rows were named by an array of shape {array.shape}: use one dimension, a row number or a mask entry each."
        )
        raise DataProtoTypeError(msg)
    if array.dtype.kind == "b":
        if len(array) != num_rows:
            msg = f"A boolean mask of length {len(array)} was used on {num_rows} rows: give one entry a row."
            raise RowIndexError(msg)
        return np.flatnonzero(array).astype(np.int64, copy=False)
    if array.dtype.kind not in "iu":
        msg = f"Rows were named by values of dtype {array.dtype}: use integers or booleans."
        raise DataProtoTypeError(msg)
    numbers = array.astype(np.int64)
    outside = (numbers < -num_rows) | (numbers >= num_rows)
    if outside.any():
        msg = (
            f"Row {int(numbers[outside][0])} was asked of a batch with {num_rows} rows: "
            f"row numbers go from {-num_rows} to {num_rows - 1}."
        )
        raise RowIndexError(msg)
    numbers[numbers < 0] += num_rows
    return numbers


def _as_array(index: RowsLike) -> np.ndarray:
    if isinstance(index, Tensor):
        if index.dtype == torch.uint8:
            # torch reads uint8 as a mask, numpy reads it as row numbers.
            msg = "Rows were named by a uint8 tensor, which may be a mask or row numbers: convert it to bool or int64."
            raise DataProtoTypeError(msg)
        return index.detach().cpu().numpy()
    if isinstance(index, np.ndarray):
        return index
    if isinstance(index, (list, tuple)):
        if not index:
            return np.empty(0, np.int64)
        num_bools = sum(isinstance(item, (bool, np.bool_)) for item in index)
        if num_bools not in (0, len(index)):
            msg = f"Rows were named by a list that mixes {num_bools} booleans with numbers: use only one of them."
            raise DataProtoTypeError(msg)
        return np.asarray(index)
    msg = f"Rows were named by a {type(index).__name__}: use a list, tuple, numpy array or tensor."
    raise DataProtoTypeError(msg)
