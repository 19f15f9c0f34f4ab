"""What a batch is made of: the three fields, what must hold between them, and how results are built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from tensordict import TensorDictBase

from rl_dataproto.assemble import Unbuilt, columns_of
from rl_dataproto.columns import (
    OpenColumn,
    as_non_tensor,
    check_tensor,
    common_rows,
    count_rows,
    cut_rows,
    take_rows,
)
from rl_dataproto.errors import ColumnError, ConflictError, DataProtoTypeError, missing
from rl_dataproto.handles import ColumnHandle
from rl_dataproto.meta import copy_meta

Keys = str | Iterable[str]


class BatchBase:
    """The fields of :class:`~rl_dataproto.batch.DataProto` and the checks between them.

    Attributes:
        batch: Tensor columns, a TensorDict with one batch dimension B, or None. A column is dense ``[B, ...]``,
            jagged ``[B, j, ...]``, or a nested TensorDict.
        non_tensor_batch: Other columns by name: numpy arrays ``[B, ...]`` or handles.
        meta_info: What is true for all rows.
    """

    _tensors: TensorDictBase | Unbuilt | None

    def __init__(
        self,
        batch: TensorDictBase | None = None,
        non_tensor_batch: dict[str, Any] | None = None,
        meta_info: dict[str, Any] | None = None,
    ) -> None:
        self._tensors = batch
        self.non_tensor_batch: dict[str, Any] = dict(non_tensor_batch or {})
        self.meta_info: dict[str, Any] = copy_meta(meta_info or {})
        self.check_consistency()

    # None is possible, but a user indexes a column far more often than a batch has none: Any spares every reader a check.
    @property
    def batch(self) -> Any:
        """The tensor columns."""
        if isinstance(self._tensors, Unbuilt):
            self._tensors = self._tensors.build()
        return self._tensors

    @batch.setter
    def batch(self, batch: TensorDictBase | Unbuilt | None) -> None:
        self._tensors = batch

    def check_consistency(self) -> None:
        """Check what the class promises; call it after writing into the fields by hand.

        Raises:
            RowCountError: Two columns have different numbers of rows.
            ConflictError: A tensor column and a non-tensor column have the same name.
            ColumnError: ``batch`` has not exactly one batch dimension, or a column cannot be one.
        """
        rows: int | None = None
        if self.batch is not None:
            if not isinstance(self.batch, TensorDictBase):
                msg = f"batch is a {type(self.batch).__name__}: use a TensorDict, or DataProto.from_dict."
                raise DataProtoTypeError(msg)
            if len(self.batch.batch_size) != 1:
                msg = f"batch has batch size {list(self.batch.batch_size)}: one dimension is needed, the rows."
                raise ColumnError(msg)
            rows = int(self.batch.batch_size[0])
            for name, column in self.batch.items():
                check_tensor(name, column)
        names = set() if self.batch is None else set(self.batch.keys())
        for name, column in self.non_tensor_batch.items():
            if not isinstance(column, (np.ndarray, ColumnHandle)):
                msg = f"Non-tensor column {name!r} is a {type(column).__name__}: use a numpy array or a ColumnHandle."
                raise DataProtoTypeError(msg)
            as_non_tensor(name, column)
            if name in names:
                msg = f"{name!r} is both a tensor column and a non-tensor column: rename one."
                raise ConflictError(msg)
        common_rows(self.non_tensor_batch, rows)

    def __len__(self) -> int:
        if isinstance(self._tensors, Unbuilt):
            return self._tensors.num_rows
        if self._tensors is not None:
            return int(self._tensors.batch_size[0])
        for column in self.non_tensor_batch.values():
            return count_rows(column)
        return 0

    @property
    def num_columns(self) -> int:
        """Number of tensor and non-tensor columns."""
        return len(self.non_tensor_batch) + len(self._tensor_names(None))

    @classmethod
    def _of(
        cls, batch: TensorDictBase | Unbuilt | None, non_tensor_batch: dict[str, Any], meta_info: dict[str, Any]
    ) -> Self:
        """Build a batch from parts that are known to be consistent and are owned by nobody else."""
        data = cls.__new__(cls)
        data._tensors, data.non_tensor_batch, data.meta_info = batch, non_tensor_batch, meta_info
        return data

    def _open_columns(self) -> dict[str, OpenColumn]:
        """The tensor columns by name, open for row operations."""
        return self._tensors.columns if isinstance(self._tensors, Unbuilt) else columns_of(self._tensors)

    def _device(self) -> torch.device | None:
        """The device that all tensor columns are known to be on."""
        return None if self._tensors is None else self._tensors.device

    def _by_column(self, num_rows: int, operation: Callable[[OpenColumn], OpenColumn]) -> Self:
        """A batch in which every column is the result of an operation on the column here."""
        batch = None
        if self._tensors is not None:
            columns = {name: operation(column) for name, column in self._open_columns().items()}
            batch = Unbuilt(columns, num_rows, self._device())
        others = {name: operation(column) for name, column in self.non_tensor_batch.items()}
        return self._of(batch, others, copy_meta(self.meta_info))

    def _cut(self, bounds: Sequence[int]) -> list[Self]:
        """Consecutive parts between the bounds, which go from 0 to the number of rows; views."""
        tensors = {name: cut_rows(column, bounds) for name, column in self._open_columns().items()}
        others = {name: cut_rows(column, bounds) for name, column in self.non_tensor_batch.items()}
        parts = []
        for number, (start, stop) in enumerate(pairwise(bounds)):
            batch = None
            if self._tensors is not None:
                batch = Unbuilt({name: cut[number] for name, cut in tensors.items()}, stop - start, self._device())
            cells = {name: cut[number] for name, cut in others.items()}
            parts.append(self._of(batch, cells, copy_meta(self.meta_info)))
        return parts

    def _take(self, numbers: np.ndarray) -> Self:
        """Rows by checked row number; a copy."""
        return self._by_column(len(numbers), lambda column: take_rows(column, numbers))

    def _tensor_names(self, keys: Keys | None) -> list[str]:
        """Names of tensor columns; all of them for None.

        Raises:
            MissingColumnError: A name is not there.
        """
        tensors = self._tensors
        known = list(tensors.columns if isinstance(tensors, Unbuilt) else () if tensors is None else tensors.keys())
        return known if keys is None else _checked("tensor column", keys, known)

    def _non_tensor_names(self, keys: Keys | None) -> list[str]:
        known = list(self.non_tensor_batch)
        return known if keys is None else _checked("non-tensor column", keys, known)

    def _meta_names(self, keys: Keys | None) -> list[str]:
        known = list(self.meta_info)
        return known if keys is None else _checked("metadata key", keys, known)


def name_list(keys: Keys) -> list[str]:
    """A list of names; one text is one name, not its letters."""
    return [keys] if isinstance(keys, str) else list(keys)


def _checked(what: str, keys: Keys, known: list[str]) -> list[str]:
    names = name_list(keys)
    for name in names:
        if name not in known:
            raise missing(name, what, known)
    return names
