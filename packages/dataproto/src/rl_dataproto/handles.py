"""Handle columns: rows that stay where they are until a worker asks for them.

A batch of images is too large to pass through the controller with every call. A :class:`ColumnHandle`
stands for such a column: it knows where the rows are (a :class:`RowSource`) and which of them the batch
holds (row numbers). Select, chunk, concat and reorder work on the row numbers alone and read nothing; it
pickles to the row numbers and the source's own few bytes. :meth:`ColumnHandle.resolve`, called on the
worker, reads the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rl_dataproto.errors import ColumnError


@runtime_checkable
class RowSource(Protocol):
    """Where the rows of a handle column live.

    An implementation is small, picklable, and compares equal to another source that reads the same rows
    (a frozen dataclass does all three).
    """

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Read rows.

        Args:
            rows: Row numbers of the source, ``[n]`` ``int64``, in any order, repeats allowed.

        Returns:
            ``[n, ...]``, one entry a row number, in the same order.
        """
        ...


@dataclass(frozen=True, slots=True)
class NpyRowSource:
    """Rows of an ``.npy`` file that every worker can open; only the pages that are asked for are read.

    Attributes:
        path: The file.
    """

    path: str | Path

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Read rows of the file; object arrays in it are refused."""
        array: np.ndarray = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return np.asarray(array[rows])


class ColumnHandle:
    """A column of row numbers into one or more sources.

    Args:
        source: Where the rows live.
        rows: Row numbers of the source, ``[n]``.

    Raises:
        ColumnError: The row numbers are not non-negative integers of one dimension.
    """

    __slots__ = ("_owners", "_rows", "_sources")

    def __init__(self, source: RowSource, rows: np.ndarray | Sequence[int]) -> None:
        numbers = np.asarray(rows, dtype=np.int64) if len(rows) == 0 else np.array(rows)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or (numbers.size and numbers.min() < 0):
            msg = (
                f"A handle was made with row numbers of shape {numbers.shape} {numbers.dtype}: use integers from 0 on."
            )
            raise ColumnError(msg)
        self._sources: tuple[RowSource, ...] = (source,)
        self._rows = numbers.astype(np.int64, copy=False)
        self._owners = np.zeros(len(numbers), np.int32)

    @classmethod
    def _of(cls, sources: tuple[RowSource, ...], rows: np.ndarray, owners: np.ndarray) -> ColumnHandle:
        handle = cls.__new__(cls)
        handle._sources, handle._rows, handle._owners = sources, rows, owners
        return handle

    @property
    def sources(self) -> tuple[RowSource, ...]:
        """The sources that at least one row may come from."""
        return self._sources

    @property
    def rows(self) -> np.ndarray:
        """Row number of every row within its source, ``[n]`` ``int64``."""
        return self._rows

    @property
    def shape(self) -> tuple[int]:
        """``(n,)``; what a row looks like is known only after it was read."""
        return (len(self._rows),)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"ColumnHandle({len(self)} rows of {', '.join(map(repr, self._sources))})"

    def __reduce__(self) -> tuple[Any, ...]:
        trimmed = self._trimmed()
        return (_rebuild, (trimmed._sources, trimmed._rows, trimmed._owners))

    def slice(self, start: int, stop: int) -> ColumnHandle:
        """Rows ``start`` to ``stop``."""
        return self._of(self._sources, self._rows[start:stop], self._owners[start:stop])

    def take(self, numbers: np.ndarray) -> ColumnHandle:
        """Rows by number, in that order, repeats allowed."""
        return self._of(self._sources, self._rows[numbers], self._owners[numbers])

    @staticmethod
    def concat(parts: Sequence[ColumnHandle]) -> ColumnHandle:
        """Put the rows of several handles behind each other; equal sources are kept once."""
        sources: list[RowSource] = []
        owners = []
        for part in parts:
            places = np.empty(len(part._sources), np.int32)
            for number, source in enumerate(part._sources):
                if source not in sources:
                    sources.append(source)
                places[number] = sources.index(source)
            owners.append(places[part._owners])
        return ColumnHandle._of(tuple(sources), np.concatenate([part._rows for part in parts]), np.concatenate(owners))

    def equals(self, other: ColumnHandle) -> bool:
        """Whether both name the same rows of equal sources; nothing is read."""
        if len(self) != len(other) or not np.array_equal(self._rows, other._rows):
            return False
        return all(
            self._sources[mine] == other._sources[theirs]
            for mine, theirs in zip(self._owners.tolist(), other._owners.tolist(), strict=True)
        )

    def resolve(self) -> np.ndarray:
        """Read the rows. Meant for workers: this is where the bytes move.

        Returns:
            ``[n, ...]`` as the sources return them; an object array when rows of several sources differ in
            shape or dtype.

        Raises:
            ColumnError: A source returned another number of rows than was asked.
        """
        if len(self._sources) == 1:
            return self._read(self._sources[0], self._rows)
        pieces: list[tuple[np.ndarray, np.ndarray]] = []
        for number, source in enumerate(self._sources):
            places = np.flatnonzero(self._owners == number)
            if len(places):
                pieces.append((places, self._read(source, self._rows[places])))
        if not pieces:
            return self._read(self._sources[0], self._rows)
        first = pieces[0][1]
        alike = all(piece.shape[1:] == first.shape[1:] and piece.dtype == first.dtype for _, piece in pieces)
        result = np.empty((len(self), *first.shape[1:]), first.dtype) if alike else np.empty(len(self), object)
        for places, piece in pieces:
            if alike:
                result[places] = piece
            else:
                for place, cell in zip(places.tolist(), piece, strict=True):
                    result[place] = cell
        return result

    @staticmethod
    def _read(source: RowSource, rows: np.ndarray) -> np.ndarray:
        read = source.read(rows)
        if len(read) != len(rows):
            msg = f"{source!r} was asked for {len(rows)} rows and returned {len(read)}: return one entry a row number."
            raise ColumnError(msg)
        return read

    def _trimmed(self) -> ColumnHandle:
        """Without the sources that no row comes from, so that a chunk does not carry them along."""
        used, owners = np.unique(self._owners, return_inverse=True)
        if len(used) in (0, len(self._sources)):
            return self
        sources = tuple(self._sources[number] for number in used.tolist())
        return self._of(sources, self._rows, owners.reshape(-1).astype(np.int32))


def _rebuild(sources: tuple[RowSource, ...], rows: np.ndarray, owners: np.ndarray) -> ColumnHandle:
    return ColumnHandle._of(sources, rows, owners)
