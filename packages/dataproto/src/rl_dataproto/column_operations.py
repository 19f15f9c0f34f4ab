"""Operations on columns: which columns a batch has, under which names, and where they are."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
import torch

from rl_dataproto.assemble import Unbuilt, columns_of, common_device, joined, tensordict_of
from rl_dataproto.base import BatchBase, Keys, name_list
from rl_dataproto.columns import moved, opened
from rl_dataproto.errors import ColumnError, ConflictError, DataProtoTypeError, RowCountError, missing
from rl_dataproto.handles import ColumnHandle
from rl_dataproto.meta import copy_meta, union_meta


class ColumnOperations(BatchBase):
    """The column operations of :class:`~rl_dataproto.batch.DataProto`."""

    def select(
        self,
        batch_keys: Keys | None = None,
        non_tensor_batch_keys: Keys | None = None,
        meta_info_keys: Keys | None = None,
        deepcopy: bool = False,
    ) -> Self:
        """Keep some columns and metadata.

        Args:
            batch_keys: Tensor columns; None keeps all, an empty list keeps none (and the number of rows).
            non_tensor_batch_keys: Non-tensor columns, likewise.
            meta_info_keys: Metadata keys, likewise.
            deepcopy: Whether nothing at all is shared with this batch, neither tensors nor cells.

        Raises:
            MissingColumnError: A name is not there.
        """
        names = self._tensor_names(batch_keys)
        batch = None
        if self._tensors is not None:
            columns = self._open_columns()
            batch = Unbuilt({name: columns[name] for name in names}, len(self), self._device())
        others, meta = dict(self.non_tensor_batch), self.meta_info
        if non_tensor_batch_keys is not None:
            others = {name: others[name] for name in self._non_tensor_names(non_tensor_batch_keys)}
        if meta_info_keys is not None:
            meta = {name: meta[name] for name in self._meta_names(meta_info_keys)}
        selected = self._of(batch, others, copy_meta(meta))
        return copy.deepcopy(selected) if deepcopy else selected

    def pop(
        self,
        batch_keys: Keys | None = None,
        non_tensor_batch_keys: Keys | None = None,
        meta_info_keys: Keys | None = None,
    ) -> Self:
        """Remove columns and metadata, in place.

        Args:
            batch_keys: Tensor columns to remove; None removes none.
            non_tensor_batch_keys: Non-tensor columns, likewise.
            meta_info_keys: Metadata keys, likewise.

        Returns:
            A batch of what was removed. The number of rows of this batch stays.

        Raises:
            MissingColumnError: A name is not there; then nothing is removed.
        """
        tensor_names = set(self._tensor_names(batch_keys or ()))
        other_names = set(self._non_tensor_names(non_tensor_batch_keys or ()))
        meta_names = set(self._meta_names(meta_info_keys or ()))
        columns = columns_of(self.batch)
        taken = {name: column for name, column in columns.items() if name in tensor_names}
        device = None if self.batch is None else self.batch.device
        popped = self._of(
            tensordict_of(taken, len(self), device) if taken else None,
            {name: column for name, column in self.non_tensor_batch.items() if name in other_names},
            {name: value for name, value in self.meta_info.items() if name in meta_names},
        )
        if taken:
            kept = {name: column for name, column in columns.items() if name not in tensor_names}
            self.batch = tensordict_of(kept, len(self), device)
        self.non_tensor_batch = {k: v for k, v in self.non_tensor_batch.items() if k not in other_names}
        self.meta_info = {k: v for k, v in self.meta_info.items() if k not in meta_names}
        return popped

    def rename(self, old_keys: Keys, new_keys: Keys) -> Self:
        """Rename columns of either kind, in place.

        Args:
            old_keys: A name or names.
            new_keys: As many new names.

        Returns:
            This batch.

        Raises:
            DataProtoTypeError: Neither a text nor a list of texts.
            ColumnError: Not as many new names as old ones.
            MissingColumnError: An old name is not there.
            ConflictError: Two columns would have the same name.
        """
        for keys in (old_keys, new_keys):
            if not isinstance(keys, (str, list, tuple)) or not all(isinstance(name, str) for name in keys):
                msg = f"rename got {keys!r}: use a name or a list of names."
                raise DataProtoTypeError(msg)
        old, new = name_list(old_keys), name_list(new_keys)
        if len(old) != len(new):
            msg = f"rename got {len(old)} old names {old} and {len(new)} new names {new}: give as many of each."
            raise ColumnError(msg)
        tensors = {} if self.batch is None else dict(self.batch.items())
        known = [*tensors, *self.non_tensor_batch]
        for name in old:
            if name not in known:
                raise missing(name, "column", known)
        names = dict(zip(old, new, strict=True))
        result = [names.get(name, name) for name in known]
        twice = sorted({name for name in result if result.count(name) > 1})
        if twice or len(names) != len(old):
            msg = f"rename {old} -> {new} would leave more than one column with a name {twice}: choose other names."
            raise ConflictError(msg)
        if self.batch is not None and any(name in tensors for name in old):
            columns = {names.get(name, name): opened(column) for name, column in tensors.items()}
            self.batch = tensordict_of(columns, len(self), self.batch.device)
        self.non_tensor_batch = {names.get(name, name): column for name, column in self.non_tensor_batch.items()}
        return self

    def union(self, other: BatchBase) -> Self:
        """Add the columns and metadata of another batch that holds the same rows, in place.

        The other batch stays as it is; its tensors are shared. A side without columns and rows adds
        only metadata. A column on both sides must be equal, with NaN and None equal to themselves.

        Returns:
            This batch.

        Raises:
            RowCountError: The sides have different numbers of rows.
            ConflictError: A column or metadata key is on both sides and differs; this batch is unchanged.
        """
        if not isinstance(other, BatchBase):
            msg = f"union got a {type(other).__name__}: give a DataProto."
            raise DataProtoTypeError(msg)
        if len(self) != len(other) and all(len(side) or side.num_columns for side in (self, other)):
            msg = f"A union of {len(self)} rows with {len(other)} rows was asked: both sides must hold the same rows."
            raise RowCountError(msg)
        mine, theirs = ({} if side.batch is None else dict(side.batch.items()) for side in (self, other))
        for name in [*(mine.keys() & other.non_tensor_batch.keys()), *(theirs.keys() & self.non_tensor_batch.keys())]:
            msg = f"{name!r} is a tensor column on one side of the union and a non-tensor column on the other: rename one."
            raise ConflictError(msg)
        tensors, others = joined(mine, theirs), joined(self.non_tensor_batch, other.non_tensor_batch)
        meta = union_meta(self.meta_info, other.meta_info)
        if self.batch is not None or other.batch is not None:
            rows, device = max(len(self), len(other)), common_device(self.batch, other.batch)
            self.batch = tensordict_of({name: opened(column) for name, column in tensors.items()}, rows, device)
        self.non_tensor_batch, self.meta_info = others, meta
        return self

    def to(self, device: torch.device | str | int) -> Self:
        """Move the tensor columns to a device, in place.

        Returns:
            This batch.
        """
        if self.batch is not None:
            target = torch.device(device)
            columns = {name: moved(column, target) for name, column in columns_of(self.batch).items()}
            self.batch = tensordict_of(columns, len(self), target)
        return self

    def resolve_handles(self, keys: Keys | None = None) -> Self:
        """A batch in which handle columns were read; call it on the worker that needs the rows.

        Args:
            keys: Handle columns to read; all of them when left out.

        Raises:
            MissingColumnError: No such non-tensor column.
            ColumnError: The column is not a handle.
        """
        names = self._non_tensor_names(keys)
        others: dict[str, Any] = dict(self.non_tensor_batch)
        for name in names:
            column = others[name]
            if isinstance(column, ColumnHandle):
                others[name] = column.resolve()
            elif keys is not None:
                msg = f"Column {name!r} is a {type(column).__name__}, not a handle: its rows are here already."
                raise ColumnError(msg)
        return self._of(self.batch, others, copy_meta(self.meta_info))

    def clone(self) -> Self:
        """Copy every column, so that tensors of the result may be written to; cells of objects are shared."""
        return self._take(np.arange(len(self), dtype=np.int64))
