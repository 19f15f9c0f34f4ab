"""One face for everything that dispatch deals out and collects, so that dispatch asks no type questions."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase

from rl_dataproto.batch import DataProto
from rl_dataproto.errors import DataProtoTypeError, EmptyConcatError
from rl_dataproto.future import DataProtoFuture, deal, is_future, join


class BatchData:
    """Wraps a batch, or a list of batches, of any type that can be dealt and joined.

    Args:
        data: A ``DataProto``, ``DataProtoFuture`` or TensorDict to be dealt; or a list of ``DataProto``,
            TensorDicts or futures to be joined.
    """

    def __init__(self, data: Any) -> None:
        self._data = data

    def is_chunkable(self) -> bool:
        """Whether :meth:`chunk` works."""
        return isinstance(self._data, (DataProto, DataProtoFuture, TensorDictBase))

    def is_concatable(self) -> bool:
        """Whether :meth:`concat` works."""
        if not isinstance(self._data, (list, tuple)) or not self._data:
            return False
        kinds = {_kind(item) for item in self._data}
        return len(kinds) == 1 and None not in kinds

    def chunk(self, chunks: int, allow_uneven: bool = False) -> list[Any]:
        """Deal the rows into ``chunks`` parts of the wrapped type; see ``DataProto.chunk``.

        Raises:
            DataProtoTypeError: The wrapped value has no rows to deal.
            UnevenChunkError: The rows do not divide.
        """
        if not self.is_chunkable():
            msg = f"A {type(self._data).__name__} was to be dealt to {chunks} workers: use a DataProto or a TensorDict."
            raise DataProtoTypeError(msg)
        return deal(self._data, chunks, allow_uneven)

    def concat(self) -> Any:
        """Join the wrapped list: batches to a batch, TensorDicts to a TensorDict, futures to a future batch.

        Raises:
            EmptyConcatError: An empty list.
            DataProtoTypeError: Not a list of one of these types.
        """
        if isinstance(self._data, (list, tuple)) and not self._data:
            msg = "An empty list was to be joined: give at least one part."
            raise EmptyConcatError(msg)
        if not self.is_concatable():
            what = [type(item).__name__ for item in self._data] if isinstance(self._data, (list, tuple)) else self._data
            msg = f"{what!r} was to be joined: use a list of DataProto, of TensorDict, or of futures."
            raise DataProtoTypeError(msg)
        return DataProtoFuture.concat(self._data) if is_future(self._data[0]) else join(self._data)


def _kind(item: Any) -> str | None:
    if isinstance(item, DataProto):
        return "batch"
    if isinstance(item, TensorDictBase):
        return "tensordict"
    return "future" if is_future(item) else None
