"""DataProto: the batch that every stage receives and returns.

A batch has B rows. Tensor columns are in ``batch``, everything else that differs by row is in
``non_tensor_batch``, and what is true for all rows is in ``meta_info``::

    data = DataProto.from_dict(
        tensors={"input_ids": torch.arange(32).reshape(8, 4)},
        non_tensors={"answer": [str(i) for i in range(8)]},
        meta_info={"temperature": 1.0},
    )
    parts = data.chunk(4)  # what dispatch does
    whole = DataProto.concat(parts)  # what collect does

Ownership is the same for every operation: the result owns its dictionaries (containers in the metadata are
copied all the way down, see :mod:`rl_dataproto.meta`), arguments stay as they are, and tensors, arrays and
cells may be shared with the argument. Operations that work in place say so; they give the batch a new
TensorDict and never write into one that somebody else may hold. Nothing ever writes into a tensor.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl_dataproto import convert, disk, report, wire
from rl_dataproto.assemble import tensordict_of
from rl_dataproto.base import BatchBase
from rl_dataproto.column_operations import ColumnOperations
from rl_dataproto.columns import OpenColumn, as_non_tensor, check_tensor, common_rows, opened
from rl_dataproto.config import DataProtoConfig
from rl_dataproto.errors import ColumnError, DataProtoTypeError
from rl_dataproto.meta import union_meta
from rl_dataproto.row_operations import RowOperations


class DataProto(RowOperations, ColumnOperations):
    """A batch of rows; the module's docstring says who owns what.

    Attributes:
        batch: Tensor columns, a TensorDict with one batch dimension B, or None. A column is dense ``[B, ...]``,
            jagged ``[B, j, ...]``, or a nested TensorDict.
        non_tensor_batch: Other columns by name: numpy arrays ``[B, ...]`` or handles.
        meta_info: What is true for all rows.
    """

    @classmethod
    def from_single_dict(
        cls, data: Mapping[str, Any], meta_info: Mapping[str, Any] | None = None, auto_padding: bool = False
    ) -> Self:
        """Build a batch from one dictionary of columns, which are told apart by type.

        Args:
            data: Tensors become tensor columns; arrays, handles and lists become non-tensor columns.
            meta_info: Metadata.
            auto_padding: Whether this batch may be dealt unevenly.
        """
        tensors = {name: column for name, column in data.items() if isinstance(column, (Tensor, TensorDictBase))}
        non_tensors = {name: column for name, column in data.items() if name not in tensors}
        return cls.from_dict(tensors, non_tensors, meta_info, auto_padding=auto_padding)

    @classmethod
    def from_dict(
        cls,
        tensors: Mapping[str, Any] | None = None,
        non_tensors: Mapping[str, Any] | None = None,
        meta_info: Mapping[str, Any] | None = None,
        num_batch_dims: int = 1,
        auto_padding: bool = False,
    ) -> Self:
        """Build a batch from dictionaries of columns.

        Args:
            tensors: Tensor columns; None or empty gives ``batch=None``.
            non_tensors: Arrays, handles, or lists with one entry a row, which become one-dimensional object
                arrays whatever the entries are.
            meta_info: Metadata.
            num_batch_dims: Must be 1; :func:`~rl_dataproto.layout.fold_batch_dim` groups rows.
            auto_padding: Whether this batch may be dealt unevenly.

        Raises:
            RowCountError: Two columns have different numbers of rows; names both.
            ColumnError: A column has no rows at all, or is a nested tensor that is not jagged.
            DataProtoTypeError: A column is of another type.
        """
        if num_batch_dims != 1:
            msg = (
                f"num_batch_dims={num_batch_dims} was asked: a batch has one row dimension, fold_batch_dim groups rows."
            )
            raise ColumnError(msg)
        columns: dict[str, OpenColumn] = {}
        for name, column in (tensors or {}).items():
            check_tensor(name, column)
            columns[name] = opened(column)
        others = {name: as_non_tensor(name, column) for name, column in (non_tensors or {}).items()}
        rows = common_rows({**columns, **others})
        meta = dict(meta_info or {})
        if auto_padding:
            meta[DataProtoConfig.auto_padding_key] = True
        return cls(tensordict_of(columns, rows) if columns else None, others, meta)

    @classmethod
    def from_tensordict(
        cls,
        tensor_dict: TensorDictBase | None,
        meta_info: Mapping[str, Any] | None = None,
        num_batch_dims: int = 1,
    ) -> Self:
        """Build a batch from a TensorDict: the inverse of :meth:`to_tensordict`.

        Args:
            tensor_dict: Tensors, values by row (``NonTensorStack``) and constants (``NonTensorData``), which
                become tensor columns, non-tensor columns and metadata.
            meta_info: More metadata; must agree with the constants.
            num_batch_dims: Must be 1.

        Raises:
            ColumnError: Not one batch dimension.
            ConflictError: A constant and ``meta_info`` disagree.
        """
        tensors, others, constants = convert.from_tensordict(tensor_dict, num_batch_dims)
        return cls(tensors, others, union_meta(meta_info or {}, constants))

    def to_tensordict(self) -> TensorDict:
        """Put columns and metadata into one TensorDict: the inverse of :meth:`from_tensordict`.

        Raises:
            ConflictError: A metadata key has the name of a column.
        """
        return convert.to_tensordict(self.batch, self.non_tensor_batch, self.meta_info, len(self))

    def save_to_disk(self, filepath: str | Path) -> None:
        """Write this batch to a file, which appears under its name only when it is complete."""
        disk.save_to_disk(self, filepath)

    @staticmethod
    def load_from_disk(filepath: str | Path, weights_only: bool = True, allow: Iterable[type] = ()) -> DataProto:
        """Read a batch that :meth:`save_to_disk` wrote; by default a file cannot run code.

        Args:
            filepath: The file.
            weights_only: False loads cells of any class, and runs whatever the file says.
            allow: Classes of cells or metadata that may be loaded as well.

        Raises:
            WireError: Not such a file, an incomplete one, or it names a class that is not allowed.
        """
        data = disk.load_from_disk(filepath, weights_only, allow)
        if not isinstance(data, DataProto):
            msg = f"{filepath} holds a {type(data).__name__}, not a DataProto."
            raise DataProtoTypeError(msg)
        return data

    def equals(self, other: BatchBase) -> bool:
        """Whether both batches have equal columns and metadata; NaN and None equal themselves."""
        return report.equal_batches(self, other)

    def print_size(self, prefix: str = "") -> None:
        """Print the memory of the columns in GiB."""
        print(report.size_line(self, prefix))  # noqa: T201 - printing is what was asked for

    def get_data_info(self) -> str:
        """Every column and metadata key with its shape and type, one a line."""
        return report.describe(self)

    def __repr__(self) -> str:
        return report.summary(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return wire.reduce_batch(self)

    def __copy__(self) -> Self:
        return self._by_column(len(self), lambda column: column)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        data = self.clone()
        memo[id(self)] = data
        data.non_tensor_batch = copy.deepcopy(data.non_tensor_batch, memo)
        data.meta_info = copy.deepcopy(data.meta_info, memo)
        return data
