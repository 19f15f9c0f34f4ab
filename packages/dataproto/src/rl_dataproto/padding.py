"""Rows added so that a number of rows divides, and their removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rl_dataproto.errors import DataProtoTypeError, RowCountError

if TYPE_CHECKING:
    from rl_dataproto.batch import DataProto

# Under this metadata key, or keyword argument, dispatch tells a worker how many rows at the end are padding.
PADDING_SIZE_KEY = "_padding_size"


def pad_dataproto_to_divisor(data: DataProto, size_divisor: int) -> tuple[DataProto, int]:
    """Append rows, taken from the front and around again, until ``size_divisor`` divides their number.

    Args:
        data: The batch; it stays as it is.
        size_divisor: What must divide the number of rows, 1 or more.

    Returns:
        The padded batch (the batch itself when nothing is missing, which includes 0 rows) and the number of
        rows that were added.

    Raises:
        RowCountError: ``size_divisor`` is less than 1.
        DataProtoTypeError: Not a batch.
    """
    if not hasattr(data, "non_tensor_batch"):
        msg = f"pad_dataproto_to_divisor got a {type(data).__name__}: give a DataProto."
        raise DataProtoTypeError(msg)
    if size_divisor < 1:
        msg = f"Padding to a multiple of {size_divisor} was asked: use 1 or more."
        raise RowCountError(msg)
    rows = len(data)
    pad_size = -rows % size_divisor
    if not pad_size:
        return data, 0
    return data.select_idxs(np.arange(rows + pad_size, dtype=np.int64) % rows), pad_size


def unpad_dataproto(data: DataProto, pad_size: int) -> DataProto:
    """Drop the last ``pad_size`` rows, a view; the inverse of :func:`pad_dataproto_to_divisor`.

    Raises:
        RowCountError: ``pad_size`` is negative or larger than the batch.
    """
    if not 0 <= pad_size <= len(data):
        msg = f"{pad_size} padding rows were to be dropped from {len(data)} rows: give what padding returned."
        raise RowCountError(msg)
    return data.slice(0, len(data) - pad_size) if pad_size else data
