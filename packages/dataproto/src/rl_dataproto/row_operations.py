"""Operations on rows: which rows a batch holds, in which order and how often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Self, TypeVar

import numpy as np
import torch
from tensordict import TensorDict

from rl_dataproto.assemble import concat_parts
from rl_dataproto.base import BatchBase, Keys
from rl_dataproto.columns import repeat_rows, row_of, slice_rows
from rl_dataproto.config import DataProtoConfig
from rl_dataproto.errors import DataProtoTypeError, EmptyConcatError, RowCountError, UnevenChunkError
from rl_dataproto.item import DataProtoItem, ragged_dims
from rl_dataproto.iterate import mini_batches
from rl_dataproto.layout import padding_numbers, repeat_counts, unfold_columns
from rl_dataproto.meta import copy_meta
from rl_dataproto.rows import RowsLike, row_number, row_numbers

BatchT = TypeVar("BatchT", bound="RowOperations")


class RowOperations(BatchBase):
    """The row operations of :class:`~rl_dataproto.batch.DataProto`."""

    def __getitem__(self, item: Any) -> Any:
        """One row for a number; a batch for a slice, a list, an array, a tensor or a boolean mask."""
        if isinstance(item, slice):
            return self.slice(item.start, item.stop, item.step)
        if isinstance(item, (list, tuple)) or (isinstance(item, (np.ndarray, torch.Tensor)) and item.ndim):
            return self.select_idxs(item)
        if isinstance(item, bool) or not hasattr(item, "__index__"):
            msg = f"A batch was indexed with {item!r}: use a row number, slice, list, array or mask; columns are in .batch."
            raise DataProtoTypeError(msg)
        number = row_number(item, len(self))
        batch = None
        if self.batch is not None:
            batch = TensorDict({name: row_of(column, number) for name, column in self.batch.items()}, batch_size=[])
        others = {name: row_of(column, number) for name, column in self.non_tensor_batch.items()}
        return DataProtoItem(batch, others, copy_meta(self.meta_info), ragged_dims(self.batch))

    def slice(self, start: int | None = None, end: int | None = None, step: int | None = None) -> Self:
        """Rows by Python's slice rules, negative numbers and steps included; a view when the step is 1."""
        rows = range(*slice(start, end, step).indices(len(self)))
        if rows.step == 1 or not rows:
            first, last = (rows.start, rows.stop) if rows else (0, 0)
            return self._by_column(len(rows), lambda column: slice_rows(column, first, last))
        return self._take(np.arange(rows.start, rows.stop, rows.step, dtype=np.int64))

    def select_idxs(self, idxs: RowsLike) -> Self:
        """Rows by number (in that order, repeats and negative numbers allowed) or by boolean mask; a copy.

        Raises:
            RowIndexError: A number is outside the batch, or the mask has another length.
            DataProtoTypeError: Neither integers nor booleans.
        """
        return self._take(row_numbers(idxs, len(self)))

    def reorder(self, indices: RowsLike) -> None:
        """Permute the rows in place.

        Args:
            indices: A permutation of all row numbers; :meth:`select_idxs` keeps some or repeats some.

        Raises:
            RowCountError: Not a permutation.
        """
        numbers = row_numbers(indices, len(self))
        if len(numbers) != len(self) or (np.bincount(numbers, minlength=len(self)) != 1).any():
            msg = f"reorder got {len(numbers)} row numbers, {len(np.unique(numbers))} different, for {len(self)} rows: "
            raise RowCountError(msg + "name each row once, or use select_idxs.")
        ordered = self._take(numbers)
        self.batch, self.non_tensor_batch = ordered.batch, ordered.non_tensor_batch

    def repeat(self, repeat_times: int = 2, interleave: bool = True) -> Self:
        """Repeat the rows; a copy (cells of object columns are shared between the copies of a row).

        Args:
            repeat_times: How often each row appears, 0 or more.
            interleave: True keeps the copies of a row together (aabb), False repeats the batch (abab).

        Raises:
            RowCountError: A negative number of times.
        """
        if repeat_times < 0:
            msg = f"repeat_times={repeat_times} was asked: use 0 or more."
            raise RowCountError(msg)
        return self._by_column(len(self) * repeat_times, lambda column: repeat_rows(column, repeat_times, interleave))

    def sample_level_repeat(self, repeat_times: Sequence[int] | np.ndarray | torch.Tensor) -> Self:
        """Repeat each row as often as its entry says; copies of a row stay together.

        Args:
            repeat_times: One count a row, 0 or more.

        Raises:
            RowCountError: Another number of counts than rows, or a negative count.
        """
        counts = repeat_counts(repeat_times, len(self))
        return self._take(np.repeat(np.arange(len(self), dtype=np.int64), counts))

    def unfold_column_chunks(self, n_split: int, split_keys: Keys | None = None) -> Self:
        """Cut the second dimension into ``n_split`` pieces that become rows; repeat the other columns to match.

        Args:
            n_split: Pieces a row.
            split_keys: Columns ``[B, n_split * L, ...]`` that become ``[B * n_split, L, ...]``; all tensor
                columns when left out.

        Raises:
            MissingColumnError: No such column.
            ColumnError: The second dimension is missing, ragged, or does not divide.
        """
        batch, others = unfold_columns(self.batch, self.non_tensor_batch, len(self), n_split, split_keys)
        return self._of(batch, others, copy_meta(self.meta_info))

    def padding(self, padding_size: int, padding_candidate: str = "") -> None:
        """Append copies of one row, in place.

        Args:
            padding_size: Rows to append; 0 changes nothing.
            padding_candidate: ``"first"`` for the first row, ``"last"`` or ``""`` for the last one.

        Raises:
            RowCountError: A negative size, or no row to copy.
            DataProtoTypeError: Another candidate.
        """
        numbers = padding_numbers(len(self), padding_size, padding_candidate)
        if padding_size:
            padded = self._take(numbers)
            self.batch, self.non_tensor_batch = padded.batch, padded.non_tensor_batch

    def is_padding_enabled(self) -> bool:
        """Whether uneven numbers of rows may be dealt: set for this batch, or for the process."""
        return bool(self.meta_info.get(DataProtoConfig.auto_padding_key, False)) or DataProtoConfig.auto_padding

    def chunk(self, chunks: int, allow_uneven: bool = False) -> list[Self]:
        """Deal the rows into exactly ``chunks`` consecutive parts; views.

        Args:
            chunks: Number of parts, 1 or more.
            allow_uneven: Whether parts may differ by one row, larger ones first, and be empty when there are
                fewer rows than parts. On by itself when :meth:`is_padding_enabled`.

        Raises:
            UnevenChunkError: The rows do not divide and ``allow_uneven`` is off.
            RowCountError: Fewer than one part was asked.
        """
        if chunks < 1:
            msg = f"{chunks} chunks were asked: use 1 or more."
            raise RowCountError(msg)
        size, rest = divmod(len(self), chunks)
        if rest and not allow_uneven and not self.is_padding_enabled():
            msg = (
                f"{len(self)} rows were to be dealt into {chunks} equal chunks, {rest} are left over: use a batch size "
                f"that {chunks} divides, pad_dataproto_to_divisor(data, {chunks}), or allow_uneven=True."
            )
            raise UnevenChunkError(msg)
        bounds = [number * size + min(number, rest) for number in range(chunks + 1)]
        return self._cut(bounds)

    def split(self, split_size: int) -> list[Self]:
        """Cut into consecutive parts of ``split_size`` rows, the last one may be shorter; views.

        Raises:
            RowCountError: Parts of fewer than one row were asked.
        """
        if split_size < 1:
            msg = f"Parts of {split_size} rows were asked: use 1 or more."
            raise RowCountError(msg)
        return self._cut([*range(0, len(self), split_size), len(self)])

    def cut(self, bounds: Sequence[int]) -> list[Self]:
        """Deal the rows into consecutive parts of any size; views.

        Args:
            bounds: Where the parts start, and where the last one ends: from 0 to the number of rows, never falling.

        Raises:
            RowCountError: The bounds are not such a list.
        """
        if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != len(self) or any(a > b for a, b in pairwise(bounds)):
            msg = f"{len(self)} rows were to be cut at {list(bounds)}: use rising numbers from 0 to {len(self)}."
            raise RowCountError(msg)
        return self._cut(bounds)

    @staticmethod
    def concat(data: Sequence[BatchT]) -> BatchT:
        """Put the rows of several batches behind each other.

        Args:
            data: Batches with the same columns. One without columns and rows adds only metadata, which is
                joined by :func:`rl_dataproto.meta.merge_meta`.

        Raises:
            EmptyConcatError: No batch was given.
            ColumnError: A batch lacks a column or has one more, or a column differs in kind, dtype or shape.
            ConflictError: Metadata differs; ``metrics`` and timings never do.
        """
        if not data:
            msg = "concat got no batch, so the columns are unknown: give at least one (it may have 0 rows)."
            raise EmptyConcatError(msg)
        parts = concat_parts(data)
        return type(data[0])._of(*parts)

    def make_iterator(
        self,
        mini_batch_size: int,
        epochs: int,
        seed: int | None = None,
        dataloader_kwargs: dict[str, Any] | None = None,
    ) -> Iterator[Self]:
        """Go over the rows in mini-batches; each is a batch with metadata of its own.

        Args:
            mini_batch_size: Rows of a mini-batch; must divide the rows unless ``drop_last`` is set.
            epochs: How often to go over all rows.
            seed: Seed of the order when shuffling; None draws it from torch's global generator.
            dataloader_kwargs: Arguments of ``torch.utils.data.DataLoader``, for example ``{"shuffle": True}``.

        Raises:
            UnevenChunkError: ``mini_batch_size`` does not divide the rows.
        """
        return mini_batches(self, mini_batch_size, epochs, seed, dataloader_kwargs)
