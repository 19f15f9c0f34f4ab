"""Jagged columns: rows of different length without padding.

The public form is torch's nested tensor with the jagged layout, which torch lets nobody index, concatenate
or pickle by rows. :class:`Jagged` is its open form, the packed values and the row offsets, and has every
row operation. Columns of one batch whose rows have equal lengths share one offsets tensor when they are
closed again, because torch adds and compares two nested tensors only then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nested._internal.nested_tensor import NestedTensor

from rl_dataproto.errors import ColumnError, RowCountError
from rl_dataproto.memory import empty_like_rows, may_write_out

# torch scatters these only as another type of their size.
_CARRIERS = {
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}


class _NotAboutTracing(logging.Filter):
    """Drops what torch says whenever a nested tensor is made: that a function which it calls itself has a new name."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("is_fx_tracing will return true")


logging.getLogger("torch.fx._symbolic_trace").addFilter(_NotAboutTracing())


def is_jagged(column: Any) -> bool:
    """Whether a value is a nested tensor with the jagged layout."""
    # Torch has one class for them; asking the tensor itself goes through its dispatcher, which costs more than a row copy.
    return isinstance(column, NestedTensor)


_COPY_ROWS_FROM = 1024
"""Mean row length from which rows are copied one by one: an index of every element costs more than a call for each row."""


@dataclass(frozen=True, eq=False, slots=True)
class Jagged:
    """The open form of a jagged column with B rows.

    Attributes:
        values: All rows packed, without gaps, along dimension ``dim - 1``; ``total`` entries there.
        offsets: Where each row starts and the last one ends, ``[B + 1]`` ``int64``, from 0 to ``total``.
        dim: The dimension of the nested tensor whose size differs from row to row, 1 for ``[B, j]``
            and 2 for ``[B, 3, j]``.
    """

    values: Tensor
    offsets: Tensor
    dim: int = 1

    @classmethod
    def of(cls, column: Tensor) -> Jagged:
        """Open a nested tensor; gaps between rows and unused ends of the values are left out."""
        nested: Any = column  # torch's stubs do not know the attributes of nested tensors
        dim: int = nested._ragged_idx
        # The method goes through torch's dispatcher for the sake of gradients.
        values: Tensor = nested.values() if _has_gradient(column) else nested._values
        offsets, lengths = nested.offsets().to(torch.int64), nested.lengths()
        if lengths is not None:
            pieces = [
                values.narrow(dim - 1, start, length)
                for start, length in zip(offsets[:-1].tolist(), lengths.tolist(), strict=True)
            ]
            return cls(_cat(pieces, dim - 1), _offsets(lengths.to(torch.int64)), dim)
        first, last = int(offsets[0]), int(offsets[-1])
        if first != 0:
            offsets = offsets - first
        if last - first != values.shape[dim - 1]:
            values = values.narrow(dim - 1, first, last - first)
        return cls(values, offsets, dim)

    def close(self) -> Tensor:
        """Build the nested tensor ``[B, ..., j, ...]``; its values are not copied."""
        if self.values.requires_grad:
            nested: Tensor = torch.nested.nested_tensor_from_jagged(self.values, self.offsets, jagged_dim=self.dim)
            return nested
        # What the call above comes to without a gradient, at a quarter of its cost; a batch has a dozen of these.
        return NestedTensor(self.values, self.offsets, _ragged_idx=self.dim)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row without its ragged dimension."""
        shape = list(self.values.shape)
        del shape[self.dim - 1]
        return tuple(shape)

    def rows(self) -> tuple[Tensor, ...]:
        """Split into one view a row."""
        return torch.split(self.values, self.offsets.diff().tolist(), dim=self.dim - 1)

    def row(self, number: int) -> Tensor:
        """One row as a view; ``number`` counts from the front."""
        start, stop = int(self.offsets[number]), int(self.offsets[number + 1])
        return self.values.narrow(self.dim - 1, start, stop - start)

    def slice(self, start: int, stop: int) -> Jagged:
        """Rows ``start`` to ``stop`` as a view."""
        offsets = self.offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return Jagged(self.values.narrow(self.dim - 1, first, last - first), offsets - first, self.dim)

    def cut(self, bounds: Sequence[int]) -> list[Jagged]:
        """Consecutive parts between row numbers, as views: one look at the offsets for all of them."""
        edges = self.offsets[torch.tensor(bounds)].tolist()
        return [
            Jagged(
                self.values.narrow(self.dim - 1, first, last - first), self.offsets[start : stop + 1] - first, self.dim
            )
            for (start, stop), (first, last) in zip(pairwise(bounds), pairwise(edges), strict=True)
        ]

    def take(self, numbers: np.ndarray) -> Jagged:
        """Rows by number, in that order, repeats allowed; a copy."""
        if not len(numbers):
            return Jagged(self.values.narrow(self.dim - 1, 0, 0), self.offsets[:1], self.dim)
        chosen = torch.from_numpy(numbers).to(self.offsets.device)
        starts = self.offsets[:-1][chosen]
        lengths = self.offsets.diff()[chosen]
        offsets = _offsets(lengths)
        dim = self.dim - 1
        if int(offsets[-1]) > _COPY_ROWS_FROM * len(numbers):
            spans = zip(starts.tolist(), lengths.tolist(), strict=True)
            return Jagged(_cat([self.values.narrow(dim, *span) for span in spans], dim), offsets, self.dim)
        index = torch.arange(int(offsets[-1]), device=offsets.device)
        index += torch.repeat_interleave(starts - offsets[:-1], lengths)
        return Jagged(_pick(self.values, dim, index.to(self.values.device)), offsets, self.dim)

    @staticmethod
    def concat(name: str, parts: Sequence[Jagged]) -> Jagged:
        """Put the rows of several columns behind each other.

        Raises:
            ColumnError: The rows differ in more than their length; names the column and both sides.
        """
        first = parts[0]
        for number, part in enumerate(parts):
            if (part.dim, part.row_shape, part.values.dtype) != (first.dim, first.row_shape, first.values.dtype):
                msg = (
                    f"Jagged column {name!r} has rows of shape {first.row_shape} {first.values.dtype} with ragged "
                    f"dimension {first.dim} in part 0 and of shape {part.row_shape} {part.values.dtype} with ragged "
                    f"dimension {part.dim} in part {number}: give every part the same kind of rows."
                )
                raise ColumnError(msg)
        lengths = torch.cat([part.offsets.diff() for part in parts])
        return Jagged(_cat([part.values for part in parts], first.dim - 1), _offsets(lengths), first.dim)

    def with_values(self, values: Tensor) -> Jagged:
        """The same rows with other values, for example on another device."""
        return Jagged(values, self.offsets.to(values.device), self.dim)


def _has_gradient(column: Tensor) -> bool:
    with torch._C.DisableTorchFunctionSubclass():
        return column.requires_grad


def _offsets(row_lengths: Tensor) -> Tensor:
    return torch.cat([row_lengths.new_zeros(1), row_lengths.cumsum(0)])


def _pick(values: Tensor, dim: int, index: Tensor) -> Tensor:
    if not may_write_out(values):
        return values.index_select(dim, index)
    shape = list(values.shape)
    shape[dim] = len(index)
    return torch.index_select(values, dim, index, out=empty_like_rows(values, shape))


def _cat(pieces: Sequence[Tensor], dim: int) -> Tensor:
    if not may_write_out(*pieces):
        return torch.cat(list(pieces), dim)
    shape = list(pieces[0].shape)
    shape[dim] = sum(piece.shape[dim] for piece in pieces)
    return torch.cat(list(pieces), dim, out=empty_like_rows(pieces[0], shape))


def jagged_from_rows(rows: Iterable[Tensor | np.ndarray | Sequence[Any]], dtype: torch.dtype | None = None) -> Tensor:
    """Build a jagged column from one tensor, array or list a row.

    Args:
        rows: Each ``[length, ...]`` with equal trailing dimensions.
        dtype: dtype of the column; that of the rows when left out. A column of no rows needs it.

    Returns:
        Nested tensor ``[B, j, ...]`` with the jagged layout.

    Raises:
        ColumnError: There is neither a row nor a dtype, or the rows differ in dtype or in trailing dimensions.
    """
    tensors = [torch.as_tensor(row, dtype=dtype) for row in rows]
    if not tensors and dtype is not None:
        return Jagged(torch.empty(0, dtype=dtype), torch.zeros(1, dtype=torch.int64)).close()
    if not tensors:
        msg = "A jagged column was asked of no rows: dtype and shape of a row are then unknown, give at least one."
        raise ColumnError(msg)
    first = tensors[0]
    for number, row in enumerate(tensors):
        if row.ndim == 0 or row.shape[1:] != first.shape[1:] or row.dtype != first.dtype:
            msg = (
                f"Row {number} of a jagged column is {tuple(row.shape)} {row.dtype}, row 0 is {tuple(first.shape)} "
                f"{first.dtype}: only the first dimension may differ (pass dtype= for rows of mixed dtype)."
            )
            raise ColumnError(msg)
    row_lengths = torch.tensor([len(row) for row in tensors], dtype=torch.int64, device=first.device)
    return Jagged(_cat(tensors, 0), _offsets(row_lengths)).close()


def lengths(column: Tensor | np.ndarray) -> Tensor:
    """Length of every row of a column.

    Args:
        column: Jagged, padded ``[B, T, ...]`` (every row then counts ``T``), or an object array whose
            cells have a length; a ``None`` cell counts 0.

    Returns:
        ``[B]`` ``int64``.

    Raises:
        ColumnError: The rows have no length.
    """
    if isinstance(column, Tensor):
        if is_jagged(column):
            return Jagged.of(column).offsets.diff()
        if column.ndim >= 2:
            return torch.full((column.shape[0],), column.shape[1], dtype=torch.int64, device=column.device)
    elif isinstance(column, np.ndarray) and column.dtype == object:
        return torch.tensor([0 if cell is None else len(cell) for cell in column], dtype=torch.int64)
    elif isinstance(column, np.ndarray) and column.ndim >= 2:
        return torch.full((column.shape[0],), column.shape[1], dtype=torch.int64)
    msg = f"Row lengths were asked of {_describe(column)}: use a jagged, padded or object column."
    raise ColumnError(msg)


def pad_jagged(
    column: Tensor | np.ndarray,
    pad_value: float,
    length: int | None = None,
    side: str = "right",
) -> Tensor:
    """Pad the rows of a jagged column to one length.

    Args:
        column: Jagged ``[B, j, ...]`` or ``[B, ..., j]``, or an object array whose cells are one row each.
        pad_value: What fills the padding.
        length: T of the result; the longest row when left out.
        side: Where padding goes, ``"right"`` or ``"left"``.

    Returns:
        ``[B, T, ...]`` (or ``[B, ..., T]``), the dtype of the column.

    Raises:
        ColumnError: The column is not jagged, the side is unknown, or a row is longer than ``length``;
            nothing is ever cut off.
    """
    if side not in ("left", "right"):
        msg = f"Padding side {side!r} was asked for: use 'left' or 'right'."
        raise ColumnError(msg)
    if isinstance(column, np.ndarray) and column.dtype == object:
        column = jagged_from_rows(column)
    if not isinstance(column, Tensor) or not is_jagged(column):
        msg = f"Padding was asked of {_describe(column)}: use a jagged column or an object column of rows."
        raise ColumnError(msg)
    opened = Jagged.of(column)
    row_lengths = opened.offsets.diff()
    longest = int(row_lengths.max()) if opened.num_rows else 0
    width = longest if length is None else length
    if longest > width:
        msg = (
            f"Padding to length {width} was asked, row {int(row_lengths.argmax())} has {longest} entries: "
            "raise the length or cut the rows yourself."
        )
        raise ColumnError(msg)
    places = torch.arange(width, device=column.device)
    lengths_2d = row_lengths[:, None]
    mask = places < lengths_2d if side == "right" else places >= width - lengths_2d
    values = opened.values.movedim(opened.dim - 1, 0)
    padded = values.new_full((opened.num_rows, width, *values.shape[1:]), pad_value)
    mask = mask.reshape(*mask.shape, *[1] * (values.ndim - 1)).expand_as(padded)
    carrier = _CARRIERS.get(values.dtype)
    if carrier is not None:
        padded = padded.view(carrier).masked_scatter(mask, values.contiguous().view(carrier)).view(values.dtype)
    else:
        padded = padded.masked_scatter(mask, values)
    return padded.movedim(1, opened.dim)


def to_jagged(padded: Tensor, mask_or_lengths: Tensor, dim: int = 1) -> Tensor:
    """Drop the padding of a column.

    Args:
        padded: ``[B, T, ...]``, or ``[B, ..., T, ...]`` with T at ``dim``.
        mask_or_lengths: Mask ``[B, T]`` whose true (non-zero) places stay, in order, wherever they are;
            or lengths ``[B]`` of rows that are padded on the right.
        dim: Which dimension holds T.

    Returns:
        Nested tensor with the jagged layout, ragged in ``dim``.

    Raises:
        ColumnError: The shapes do not fit.
        RowCountError: Another number of rows, or a length outside 0 to T.
    """
    if padded.ndim <= dim or dim < 1:
        msg = f"Padding was to be dropped from dimension {dim} of shape {tuple(padded.shape)}: use dimension 1 or more."
        raise ColumnError(msg)
    rows, width = padded.shape[0], padded.shape[dim]
    if mask_or_lengths.ndim == 1:
        if len(mask_or_lengths) != rows or bool(((mask_or_lengths < 0) | (mask_or_lengths > width)).any()):
            msg = f"Lengths {mask_or_lengths.tolist()} were given for {rows} rows of at most {width}: give one a row."
            raise RowCountError(msg)
        total = int(mask_or_lengths.sum())
        if total > _COPY_ROWS_FROM * rows:
            pieces = [row.narrow(dim - 1, 0, size) for row, size in zip(padded, mask_or_lengths.tolist(), strict=True)]
            return Jagged(_cat(pieces, dim - 1), _offsets(mask_or_lengths.to(padded.device, torch.int64)), dim).close()
        mask = torch.arange(width, device=padded.device) < mask_or_lengths[:, None]
    else:
        mask = mask_or_lengths.bool()
        if mask.shape != (rows, width):
            msg = f"A mask of shape {tuple(mask.shape)} was given for {rows} rows of {width}: use shape [{rows}, {width}]."
            raise ColumnError(msg)
    values = padded.movedim(dim, 1)[mask].movedim(0, dim - 1)
    return Jagged(values, _offsets(mask.sum(1, dtype=torch.int64)), dim).close()


def _describe(column: Any) -> str:
    if isinstance(column, (Tensor, np.ndarray)):
        return f"a {type(column).__name__} of shape {tuple(column.shape)} {column.dtype}"
    return f"a {type(column).__name__}"
