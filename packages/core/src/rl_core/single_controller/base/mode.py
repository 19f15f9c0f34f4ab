"""What a dispatch mode is, and how modes cut arguments and check outputs.

A mode is two functions. ``dispatch_fn(scope, *args, **kwargs)`` gives one ``Call`` for each rank, or None for a rank
that is left out. ``collect_fn(scope, outputs)`` makes the result from the outputs of the called ranks, in rank order.

One rule holds for all modes: an argument is split only if the mode says so for its type. A list is data of its own
and goes whole to every worker, except with ``DP_COMPUTE``, which is about lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rl_dataproto import DataProto, DataProtoFuture

from rl_core.errors import WorkerError
from rl_core.single_controller.base.call import Call, CallScope

DispatchFn = Callable[..., Sequence[Call | None]]
CollectFn = Callable[[CallScope, list[Any]], Any]
Splitter = Callable[[DataProto | DataProtoFuture], Sequence[Any]]


@dataclass(frozen=True)
class DispatchMode:
    """A way to split and gather.

    Attributes:
        name: for messages.
        dispatch_fn: splits; see the module.
        collect_fn: gathers; see the module.
        result: what a call that does not block returns: one future ("single", "value": the collected result), a list
            of them ("list"), or a ``DataProtoFuture`` ("proto").
    """

    name: str
    dispatch_fn: DispatchFn
    collect_fn: CollectFn
    result: Literal["single", "list", "proto", "value"] = "value"


def split_batches(
    scope: CallScope, pieces: int, split: Splitter, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Call]:
    """Cut every DataProto and DataProtoFuture with ``split``; everything else is the same in every piece.

    Raises:
        TypeError: there is nothing to split.
    """
    values = [*args, *kwargs.values()]
    if not any(isinstance(value, DataProto | DataProtoFuture) for value in values):
        kinds = ", ".join(type(value).__name__ for value in values) or "no argument"
        msg = f"{scope} splits a batch over the workers, so it wants a DataProto; got {kinds}"
        raise TypeError(msg)
    cut = [split(value) if isinstance(value, DataProto | DataProtoFuture) else [value] * pieces for value in values]
    columns = list(zip(*cut, strict=True))
    return [Call(column[: len(args)], dict(zip(kwargs, column[len(args) :], strict=True))) for column in columns]


def as_batch(scope: CallScope, rank: int, output: object, role: str = "") -> DataProto:
    """``output``, if it is a DataProto.

    Args:
        scope: the call that was made.
        rank: of the worker that returned it.
        output: what it returned.
        role: why this rank's output counts, for the message.

    Raises:
        WorkerError: it is something else; names method and rank.
    """
    if not isinstance(output, DataProto):
        found = "None" if output is None else f"a {type(output).__name__}"
        msg = f"{scope} returned {found} on rank {rank}{role}; it must return a DataProto there"
        raise WorkerError(msg)
    return output
