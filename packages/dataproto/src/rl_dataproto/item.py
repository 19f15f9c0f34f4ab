"""One row of a batch, and a batch from rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase

from rl_dataproto.columns import object_array
from rl_dataproto.errors import ColumnError, EmptyConcatError
from rl_dataproto.handles import ColumnHandle
from rl_dataproto.jagged import Jagged, is_jagged

if TYPE_CHECKING:
    from rl_dataproto.batch import DataProto


@dataclass(eq=False)
class DataProtoItem:
    """One row.

    Attributes:
        batch: The row's tensors, a TensorDict without batch dimension, or None.
        non_tensor_batch: The row's cells; a handle column gives a handle with one row.
        meta_info: The item's own copy of the batch's metadata.
        ragged_dims: For every tensor that came from a jagged column, which dimension of the column was ragged (for
            a nested TensorDict, the same of its tensors); :func:`collate_fn` makes it a jagged column again.
    """

    batch: TensorDictBase | None = None
    non_tensor_batch: dict[str, Any] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)
    ragged_dims: dict[str, Any] = field(default_factory=dict)


def ragged_dims(batch: TensorDictBase | None) -> dict[str, Any]:
    """The ragged dimension of every jagged column of a TensorDict, and of those it contains."""
    found: dict[str, Any] = {}
    for name, column in [] if batch is None else batch.items():
        if isinstance(column, TensorDictBase):
            found[name] = ragged_dims(column)
        elif is_jagged(column):
            found[name] = Jagged.of(column).dim
    return found


def collate_fn(x: Sequence[DataProtoItem]) -> DataProto:
    """Make a batch of rows, for a ``DataLoader`` over a batch; metadata is left behind.

    Args:
        x: At least one row, all with the same columns.

    Raises:
        EmptyConcatError: No row was given.
        ColumnError: A row lacks a column or has one more, or its tensors differ in shape.
    """
    # The batch class is built on rows, so it cannot be imported at the top.
    from rl_dataproto.batch import DataProto  # noqa: PLC0415

    if not x:
        msg = "collate_fn got no row, so the columns are unknown: give at least one."
        raise EmptyConcatError(msg)
    tensors: list[dict[str, Any]] = [{} if item.batch is None else dict(item.batch.items()) for item in x]
    for number, item in enumerate(x):
        if tensors[number].keys() != tensors[0].keys() or item.non_tensor_batch.keys() != x[0].non_tensor_batch.keys():
            mine, first = ([*tensors[n], *x[n].non_tensor_batch] for n in (number, 0))
            msg = f"Row {number} has columns {mine}, row 0 has {first}: all rows must have the same."
            raise ColumnError(msg)
    columns = {name: _stacked(name, [row[name] for row in tensors], x[0].ragged_dims.get(name)) for name in tensors[0]}
    others: dict[str, Any] = {}
    for name, cell in x[0].non_tensor_batch.items():
        cells = [item.non_tensor_batch[name] for item in x]
        others[name] = ColumnHandle.concat(cells) if isinstance(cell, ColumnHandle) else object_array(cells)
    return DataProto.from_dict(columns, others)


def _stacked(name: str, rows: Sequence[Any], ragged_dim: Any) -> Any:
    if isinstance(rows[0], TensorDictBase):
        inner = ragged_dim or {}
        columns = {
            key: _stacked(f"{name}.{key}", [row.get(key) for row in rows], inner.get(key)) for key, _ in rows[0].items()
        }
        return TensorDict(columns, batch_size=[len(rows)])
    if ragged_dim is not None:
        parts = [
            Jagged(row, torch.tensor([0, row.shape[ragged_dim - 1]], device=row.device), ragged_dim) for row in rows
        ]
        return Jagged.concat(name, parts).close()
    shapes = {tuple(row.shape) for row in rows}
    if len(shapes) > 1:
        msg = f"Rows of column {name!r} have shapes {sorted(shapes)}: make them equal, or the column jagged."
        raise ColumnError(msg)
    return torch.stack(list(rows))
