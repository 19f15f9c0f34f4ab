"""How the rows of a batch are cut into micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

from rl_core.errors import ConfigError, DataError
from rl_dataproto import token_budget_micro_batches


def cut_units(row_lengths: Sequence[int], size: int | None, budget: int | None, together: int) -> list[list[int]]:
    """``cut_rows`` over units of ``together`` consecutive rows, as ``rl_core.contracts.engine.ROWS_TOGETHER_KEY`` says.

    Raises:
        DataError: the last unit is not whole.
    """
    count, rest = divmod(len(row_lengths), together)
    if rest:
        msg = f"{len(row_lengths)} rows are not whole units of {together}"
        raise DataError(msg)
    rows = [range(unit * together, (unit + 1) * together) for unit in range(count)]
    unit_lengths = [sum(row_lengths[row] for row in unit) for unit in rows]
    whole = None if size is None else max(size // together, min(size, 1))
    return [[row for unit in cut for row in rows[unit]] for cut in cut_rows(unit_lengths, whole, budget)]


def cut_rows(row_lengths: Sequence[int], size: int | None, budget: int | None) -> list[list[int]]:
    """Row numbers of each micro-batch; every row once, no micro-batch empty.

    Args:
        row_lengths: tokens of each row.
        size: rows a micro-batch; wins over ``budget``.
        budget: tokens a micro-batch. Rows are packed, so they do not stay in order; one that is longer travels alone.

    Raises:
        ConfigError: a limit is below 1.
    """
    if any(limit is not None and limit < 1 for limit in (size, budget)):
        msg = f"a micro-batch holds at least one row and one token; asked for {size} rows, {budget} tokens"
        raise ConfigError(msg)
    rows = list(range(len(row_lengths)))
    if not rows:
        return []
    if size is not None:
        return [rows[start : start + size] for start in range(0, len(rows), size)]
    if budget is None:
        return [rows]
    return token_budget_micro_batches(row_lengths, budget)
