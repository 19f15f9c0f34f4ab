"""Micro-batches by token budget, and outputs back in the order of the input.

Rows are packed by length so that each micro-batch fits a token budget. Packing changes their order; whatever
is computed by row goes back through :func:`restore_order` with the same row numbers, so that it lands on the
row it was computed from.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from rl_dataproto.base import BatchBase
from rl_dataproto.columns import closed, concat_rows, count_rows, opened, take_rows
from rl_dataproto.errors import DataProtoTypeError, EmptyConcatError, RowCountError
from rl_dataproto.row_operations import RowOperations

# The row number of a row that only fills up a micro-batch; what is computed from it is dropped.
PADDING_ROW = -1

PieceT = TypeVar("PieceT")


def token_budget_micro_batches(
    lengths: Sequence[int] | np.ndarray | Tensor, max_tokens: int, min_batches: int = 0
) -> list[list[int]]:
    """Pack rows into few micro-batches of at most ``max_tokens`` tokens.

    Best fit decreasing: the longest row first, each into the fullest micro-batch that still takes it. It needs
    at most 11/9 of the fewest possible micro-batches, plus 4. The same lengths always give the same packing.
    Source: Johnson, Demers, Ullman, Garey, Graham, "Worst-case performance bounds for simple one-dimensional
    packing algorithms", SIAM Journal on Computing 3 (1974).

    Args:
        lengths: Tokens of every row, ``[B]``.
        max_tokens: Budget. A longer row gets a micro-batch of its own.
        min_batches: Smallest number of micro-batches, for ranks that must make the same number of steps. The
            heaviest ones are split; when every row stands alone, ``[PADDING_ROW]`` is added.

    Returns:
        Row numbers of each micro-batch, ascending; micro-batches in the order of their first row.

    Raises:
        RowCountError: A budget below 1, or a negative number of batches or length.
    """
    tokens = [int(length) for length in lengths]
    if max_tokens < 1 or min_batches < 0 or any(length < 0 for length in tokens):
        msg = (
            f"max_tokens={max_tokens}, min_batches={min_batches} and lengths from {min(tokens, default=0)} were given: "
        )
        raise RowCountError(msg + "use at least 1, 0 and 0.")
    batches: list[list[int]] = []
    # (room left, micro-batch), ascending, so that the first with enough room is the fullest.
    room: list[tuple[int, int]] = []
    for row in sorted(range(len(tokens)), key=lambda number: (-tokens[number], number)):
        place = bisect.bisect_left(room, (tokens[row], -1))
        if place == len(room):
            left, batch = max_tokens, len(batches)
            batches.append([])
        else:
            left, batch = room.pop(place)
        batches[batch].append(row)
        if tokens[row] <= left:
            bisect.insort(room, (left - tokens[row], batch))
    _split_to(batches, tokens, min_batches)
    ordered = sorted((sorted(batch) for batch in batches), key=lambda batch: batch[0])
    return ordered + [[PADDING_ROW] for _ in range(min_batches - len(ordered))]


def _split_to(batches: list[list[int]], tokens: Sequence[int], count: int) -> None:
    """Split the heaviest micro-batches in place until there are ``count``, as long as one has two rows."""
    while len(batches) < count:
        splittable = [number for number, batch in enumerate(batches) if len(batch) > 1]
        if not splittable:
            return
        heaviest = max(splittable, key=lambda number: (sum(tokens[row] for row in batches[number]), -number))
        # Rows are in descending length, so dealing them in turn gives halves of similar weight.
        rows = batches[heaviest]
        batches[heaviest] = rows[::2]
        batches.append(rows[1::2])


def restore_order(pieces: Sequence[PieceT], indices: Sequence[Sequence[int]]) -> PieceT:
    """Put the outputs of micro-batches back into the order of the input.

    Args:
        pieces: The output of every micro-batch, one entry a row: all batches, tensors (dense or jagged), arrays,
            or lists.
        indices: Row numbers of every micro-batch, as :func:`token_budget_micro_batches` returned them.
            Outputs of :data:`PADDING_ROW` are dropped.

    Returns:
        The outputs of rows 0, 1, 2, ..., of the same type as a piece.

    Raises:
        RowCountError: A piece has another number of rows than its micro-batch, or the row numbers are not
            0 to B - 1, once each.
        EmptyConcatError: No piece was given.
        DataProtoTypeError: A piece of another type.
    """
    if not pieces:
        msg = "restore_order got no piece: give the output of every micro-batch."
        raise EmptyConcatError(msg)
    counts = [_rows(piece) for piece in pieces]
    if counts != [len(rows) for rows in indices]:
        msg = f"Pieces of {counts} rows were given for micro-batches of {[len(rows) for rows in indices]} rows: "
        raise RowCountError(msg + "every row of a micro-batch has one output.")
    order = np.array([row for rows in indices for row in rows], dtype=np.int64)
    real = np.flatnonzero(order != PADDING_ROW)
    if not np.array_equal(np.sort(order[real]), np.arange(len(real))):
        msg = f"The micro-batches hold rows {order[real].tolist()}: each of 0 to {len(real) - 1} must be there once."
        raise RowCountError(msg)
    restored: PieceT = _taken(pieces, real[np.argsort(order[real], kind="stable")])
    return restored


def _rows(piece: Any) -> int:
    if isinstance(piece, (BatchBase, list)):
        return len(piece)
    if isinstance(piece, (Tensor, np.ndarray)):
        return count_rows(piece)
    msg = f"restore_order got a piece of type {type(piece).__name__}: use batches, tensors, arrays or lists."
    raise DataProtoTypeError(msg)


def _taken(pieces: Sequence[Any], numbers: np.ndarray) -> Any:
    first = pieces[0]
    if isinstance(first, RowOperations):
        return RowOperations.concat(pieces).select_idxs(numbers)
    if isinstance(first, list):
        flat = [item for piece in pieces for item in piece]
        return [flat[number] for number in numbers.tolist()]
    joined = concat_rows("output", [opened(piece) for piece in pieces])
    return closed({"output": take_rows(joined, numbers)})["output"]
