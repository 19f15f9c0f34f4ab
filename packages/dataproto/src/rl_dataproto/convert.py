"""Between a batch and one TensorDict that holds everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tensordict import NonTensorData, NonTensorStack, TensorDict, TensorDictBase

from rl_dataproto.assemble import tensordict_of
from rl_dataproto.columns import Column, OpenColumn, object_array, opened
from rl_dataproto.errors import ColumnError, ConflictError

# A NonTensorStack keeps cells, not a dtype, and cannot stand for a handle or for no rows. What it would lose
# travels beside it as constants with these names.
_DTYPES = "_numpy_dtypes"
_WHOLE_COLUMNS = "_whole_columns"


def to_tensordict(
    batch: TensorDictBase | None, non_tensor_batch: Mapping[str, Column], meta_info: Mapping[str, Any], num_rows: int
) -> TensorDict:
    """Put columns and metadata into one TensorDict; see ``DataProto.to_tensordict``."""
    names = {*(() if batch is None else batch.keys()), *non_tensor_batch}
    if both := sorted(names & meta_info.keys()):
        msg = f"{both} name both a column and a metadata key: rename one, a TensorDict has one name for each."
        raise ConflictError(msg)
    entries: dict[str, Any] = {} if batch is None else dict(batch.items())
    dtypes: dict[str, np.dtype[Any]] = {}
    whole: dict[str, Column] = {}
    for name, column in non_tensor_batch.items():
        if not isinstance(column, np.ndarray) or not len(column):
            whole[name] = column
            continue
        if column.dtype != object:
            dtypes[name] = column.dtype
        entries[name] = NonTensorStack(*(NonTensorData(cell, batch_size=[]) for cell in column))
    constants = {**meta_info, **({_DTYPES: dtypes} if dtypes else {}), **({_WHOLE_COLUMNS: whole} if whole else {})}
    entries.update({name: NonTensorData(value, batch_size=[num_rows]) for name, value in constants.items()})
    return TensorDict(entries, batch_size=[num_rows], device=None if batch is None else batch.device)


def from_tensordict(
    tensor_dict: TensorDictBase | None, num_batch_dims: int
) -> tuple[TensorDict | None, dict[str, Any], dict[str, Any]]:
    """Take a TensorDict apart into tensor columns, non-tensor columns and metadata."""
    if tensor_dict is None:
        return None, {}, {}
    if num_batch_dims != 1 or len(tensor_dict.batch_size) != 1:
        msg = f"A TensorDict with batch size {list(tensor_dict.batch_size)} came with num_batch_dims={num_batch_dims}: "
        raise ColumnError(msg + "a batch has one row dimension.")
    tensors: dict[str, OpenColumn] = {}
    others: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    for name, value in tensor_dict.items():
        if isinstance(value, NonTensorStack):
            others[name] = object_array(value.tolist())
        elif isinstance(value, NonTensorData):
            meta[name] = value.data
        else:
            tensors[name] = opened(value)
    others.update(meta.pop(_WHOLE_COLUMNS, {}))
    for name, dtype in meta.pop(_DTYPES, {}).items():
        if name in others:
            others[name] = np.array(others[name].tolist(), dtype=dtype)
    rows = int(tensor_dict.batch_size[0])
    if tensors or (rows and not others):
        return tensordict_of(tensors, rows, tensor_dict.device), others, meta
    return None, others, meta
