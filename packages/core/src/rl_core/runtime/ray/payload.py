"""How the arguments of a call cross to the workers: each distinct one once, however many workers read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from rl_dataproto import DataProto, DataProtoFuture

from rl_core.single_controller.base.call import Call
from rl_core.single_controller.base.future import WorkerFuture

_SMALL_BYTES = 64 * 1024
"""Below this, a copy for each worker costs less than a visit to the object store."""
_SMALL_ITEMS = 64
_PLAIN = (type(None), bool, int, float, complex, Enum, WorkerFuture, DataProtoFuture)


class Shared:
    """Stands in a call for a value that several workers read; it is put into the object store once."""

    def __init__(self, ref: Any) -> None:
        """Keep Ray's reference to the value."""
        self.ref = ref

    def open(self) -> Any:
        """The value; columns and arrays are the store's memory, not copies."""
        import ray  # noqa: PLC0415 - layers above choose a runtime without loading Ray

        return ray.get(self.ref)


def ship(calls: Mapping[int, Call]) -> dict[int, Call]:
    """The calls as they travel.

    What one worker reads goes with its call, and Ray keeps it in the object store once if it is large. What several read
    (tensor-parallel peers, a broadcast) is put there once for all of them, unless it is small.
    """
    readers: dict[int, int] = {}
    for call in calls.values():
        for value in (*call.args, *call.kwargs.values()):
            readers[id(value)] = readers.get(id(value), 0) + 1
    if all(count == 1 for count in readers.values()):
        return dict(calls)
    import ray  # noqa: PLC0415 - as above

    travelling: dict[int, Any] = {}

    def shipped(value: Any) -> Any:
        if readers[id(value)] == 1:
            return value
        if id(value) not in travelling:
            travelling[id(value)] = value if is_small(value) else Shared(ray.put(value))
        return travelling[id(value)]

    return {
        rank: replace(
            call,
            args=tuple(map(shipped, call.args)),
            kwargs={name: shipped(value) for name, value in call.kwargs.items()},
        )
        for rank, call in calls.items()
    }


def is_small(value: Any) -> bool:
    """Whether ``value`` is certainly small; what it takes long to find out about counts as large."""
    if isinstance(value, _PLAIN):
        return True
    if isinstance(value, DataProto):
        return False
    if isinstance(value, str | bytes | bytearray):
        return len(value) < _SMALL_BYTES
    if isinstance(value, dict):
        return len(value) < _SMALL_ITEMS and all(map(is_small, value)) and all(map(is_small, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return len(value) < _SMALL_ITEMS and all(map(is_small, value))
    size = getattr(value, "nbytes", None)  # of arrays and tensors; of anything else nothing is known
    return isinstance(size, int) and size < _SMALL_BYTES


def opened(call: Call) -> Call:
    """On the worker: the call with its values in place."""

    def value_of(value: Any) -> Any:
        return value.open() if isinstance(value, Shared) else value

    return replace(
        call,
        args=tuple(map(value_of, call.args)),
        kwargs={name: value_of(value) for name, value in call.kwargs.items()},
    )
