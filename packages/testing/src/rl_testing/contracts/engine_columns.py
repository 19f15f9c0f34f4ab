"""The tensor columns of a batch that is known to have some."""

from __future__ import annotations

from typing import Any

from rl_dataproto import DataProto


def columns(batch: DataProto) -> Any:
    """The TensorDict of ``batch``.

    Raises:
        AssertionError: the batch has no tensor column.
    """
    if batch.batch is None:
        msg = "the batch has no tensor columns; the suite's batches, and every answer of an engine, have some"
        raise AssertionError(msg)
    return batch.batch
