"""A batch that is still being computed.

A worker group that does not wait returns a :class:`DataProtoFuture`: its parts are futures of the workers'
results, and passing it on to the next worker group costs the controller nothing. Each worker that receives one
calls :meth:`~DataProtoFuture.get`, which waits for the parts, joins them, and takes what this worker was dealt.

A part is anything with the methods of :class:`Future`, such as ``concurrent.futures.Future``, or of a type
that a runtime has registered with :func:`register_future`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from tensordict import TensorDictBase

from rl_dataproto.batch import DataProto
from rl_dataproto.errors import DataProtoTypeError, EmptyConcatError, FutureTimeoutError

Resolver = Callable[[Sequence[Any], float | None], Sequence[Any]]

_resolvers: dict[type, Resolver] = {}


@runtime_checkable
class Future(Protocol):
    """A result that may not be there yet."""

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result.

        Args:
            timeout: Seconds to wait; None waits for as long as it takes.

        Raises:
            TimeoutError: The result did not come in time.
        """
        ...

    def done(self) -> bool:
        """Whether :meth:`result` would return, or raise what the work raised, at once."""
        ...


def register_future(kind: type, resolve: Resolver) -> None:
    """Teach :class:`DataProtoFuture` a type of future that has other methods than :class:`Future`.

    Args:
        kind: The type; its subclasses are covered.
        resolve: Waits for a list of such futures, given the seconds that are left or None, and returns their
            results in order. Raises ``TimeoutError`` when they are not ready in time. Registering a type
            again replaces its function, so that a runtime may do it whenever it starts.
    """
    _resolvers[kind] = resolve


def is_future(value: Any) -> bool:
    """Whether a value is a future that :class:`DataProtoFuture` can wait for."""
    return _resolver_of(value) is not None or isinstance(value, Future)


def _resolver_of(value: Any) -> Resolver | None:
    return next((_resolvers[kind] for kind in type(value).__mro__ if kind in _resolvers), None)


def resolve_all(futures: Sequence[Any], timeout_s: float | None = None) -> list[Any]:
    """Wait for futures, all within one deadline.

    Args:
        futures: Futures of one type.
        timeout_s: Seconds for all of them together; None waits for as long as it takes.

    Returns:
        Their results, in order.

    Raises:
        FutureTimeoutError: Not all were ready in time; says which one was waited for.
        DataProtoTypeError: Something that is not a future. What the work raised is raised as it is.
    """
    for number, future in enumerate(futures):
        if not is_future(future):
            msg = f"Part {number} of {len(futures)} is a {type(future).__name__}: use futures, or register_future the type."
            raise DataProtoTypeError(msg)
    resolver = _resolver_of(futures[0]) if futures else None
    if resolver is not None:
        try:
            return list(resolver(futures, timeout_s))
        except TimeoutError as error:
            msg = f"{len(futures)} futures of type {type(futures[0]).__name__} were not all ready after {timeout_s} s."
            raise FutureTimeoutError(msg) from error
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    return [_result(future, number, len(futures), deadline, timeout_s) for number, future in enumerate(futures)]


def _result(future: Future, number: int, count: int, deadline: float | None, timeout_s: float | None) -> Any:
    try:
        return future.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
    except TimeoutError as error:
        if future.done():
            # The work itself ended with this error, in time.
            raise
        msg = f"Future {number} of {count} was not ready after {timeout_s} s: its worker is slow, stuck or gone."
        raise FutureTimeoutError(msg) from error


def join(parts: Sequence[Any]) -> Any:
    """Put the rows of batches, or of TensorDicts, behind each other."""
    if parts and all(isinstance(part, TensorDictBase) for part in parts):
        return DataProto.concat([DataProto.from_tensordict(part) for part in parts]).to_tensordict()
    return DataProto.concat(parts)


def deal(data: Any, chunks: int, allow_uneven: bool = False) -> list[Any]:
    """Deal the rows of a batch, a future batch or a TensorDict into ``chunks`` parts of the same type."""
    if isinstance(data, TensorDictBase):
        parts = DataProto.from_tensordict(data).chunk(chunks, allow_uneven)
        return [part.to_tensordict() for part in parts]
    parts = data.chunk(chunks, allow_uneven)
    return list(parts)


@dataclass(frozen=True)
class _Dealt:
    """Takes one worker's part of a batch; an object because it travels to that worker."""

    number: int
    chunks: int
    allow_uneven: bool
    before: Callable[[Any], Any] | None

    def __call__(self, data: Any) -> Any:
        whole = data if self.before is None else self.before(data)
        return deal(whole, self.chunks, self.allow_uneven)[self.number]


@dataclass(frozen=True, eq=False)
class DataProtoFuture:
    """A batch whose parts are futures. The controller may pass it on, chunk it, or wait for it.

    Attributes:
        collect_fn: Joins the results of the parts to one batch.
        futures: The parts, in the order of the rows.
        dispatch_fn: What is taken from the joined batch; None takes all of it.
    """

    collect_fn: Callable[[Sequence[Any]], Any]
    futures: Sequence[Any]
    dispatch_fn: Callable[[Any], Any] | None = None

    @staticmethod
    def concat(data: Sequence[Any]) -> DataProtoFuture:
        """The future of a batch from the futures of its parts.

        Raises:
            EmptyConcatError: No part was given.
        """
        if not data:
            msg = "A future batch was asked of no futures: give at least one."
            raise EmptyConcatError(msg)
        return DataProtoFuture(join, list(data))

    def chunk(self, chunks: int, allow_uneven: bool = False) -> list[DataProtoFuture]:
        """Futures of the parts that ``DataProto.chunk`` will deal; an uneven batch raises in :meth:`get`."""
        return [
            replace(self, dispatch_fn=_Dealt(number, chunks, allow_uneven, self.dispatch_fn))
            for number in range(chunks)
        ]

    def get(self, timeout_s: float | None = None) -> Any:
        """Wait for the parts and build the batch.

        Args:
            timeout_s: Seconds for all parts together; None waits for as long as it takes.

        Raises:
            FutureTimeoutError: A part was not ready in time. What a worker raised is raised as it is.
        """
        whole = self.collect_fn(resolve_all(self.futures, timeout_s))
        return whole if self.dispatch_fn is None else self.dispatch_fn(whole)
