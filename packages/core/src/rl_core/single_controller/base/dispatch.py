"""The built-in dispatch modes; see ``mode`` for what a mode is and ``mesh`` for those that know a mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NoReturn

from rl_dataproto import DataProto, DataProtoFuture

from rl_core.errors import ShapeError, WorkerError
from rl_core.single_controller.base.call import Call, CallScope
from rl_core.single_controller.base.mesh import (
    make_mini_batch_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
)
from rl_core.single_controller.base.mode import DispatchMode, as_batch, split_batches

__all__ = [
    "BUILTIN_MODES",
    "Dispatch",
    "DispatchMode",
    "as_dispatch_mode",
    "make_mini_batch_dispatch_fn",
    "make_nd_compute_dataproto_dispatch_fn",
]


class Dispatch(Enum):
    """The built-in modes."""

    RANK_ZERO = "rank_zero"
    """Only rank 0 is called; its output is the result."""
    ONE_TO_ALL = "one_to_all"
    """Every worker gets the same arguments; the result is the list of outputs."""
    ALL_TO_ALL = "all_to_all"
    """As ONE_TO_ALL: arguments pass untouched."""
    DP_COMPUTE = "dp_compute"
    """Every argument is a list with one item for each worker; the result is the list of outputs."""
    DP_COMPUTE_PROTO = "dp_compute_proto"
    """DataProto arguments are cut into equal pieces, one a worker; DataProto outputs are concatenated."""
    DP_COMPUTE_PROTO_WITH_FUNC = "dp_compute_proto_with_func"
    """As DP_COMPUTE_PROTO, with a function as first argument that every worker gets."""
    DP_COMPUTE_METRIC = "dp_compute_metric"
    """Splits as DP_COMPUTE_PROTO; the result is the list of outputs."""
    DIRECT_ROLLOUT_METHOD = "direct_rollout_method"
    """Not for the controller: the method is called on one worker by who holds it."""


def as_dispatch_mode(mode: Dispatch | DispatchMode | Mapping[str, Any]) -> DispatchMode:
    """The mode object behind everything ``register`` takes except a plugin's name.

    Raises:
        TypeError: ``mode`` is none of them, or a mapping without exactly two functions.
    """
    if isinstance(mode, DispatchMode):
        return mode
    if isinstance(mode, Dispatch):
        return BUILTIN_MODES[mode]
    if not isinstance(mode, Mapping):
        msg = (
            f"a dispatch mode is a member of Dispatch, a DispatchMode, a dict with dispatch_fn and collect_fn, or the "
            f"name of a plugin's dispatch mode; got {mode!r}"
        )
        raise TypeError(msg)
    functions = {name: mode.get(name) for name in ("dispatch_fn", "collect_fn")}
    if set(mode) != set(functions) or not all(map(callable, functions.values())):
        msg = f"a dispatch mode as a dict has two functions, dispatch_fn and collect_fn; got {dict(mode)!r}"
        raise TypeError(msg)
    name = getattr(mode["dispatch_fn"], "__qualname__", "custom")
    return DispatchMode(name, mode["dispatch_fn"], mode["collect_fn"])


def broadcast(scope: CallScope, *args: Any, **kwargs: Any) -> list[Call | None]:
    """The same arguments for every worker."""
    return [Call(args, kwargs) for _ in range(scope.world_size)]


def to_rank_zero(scope: CallScope, *args: Any, **kwargs: Any) -> list[Call | None]:
    """A call of rank 0 only."""
    return [Call(args, kwargs), *[None] * (scope.world_size - 1)]


def first_output(_scope: CallScope, outputs: list[Any]) -> Any:
    """The output of the one worker that was called."""
    return outputs[0]


def all_outputs(_scope: CallScope, outputs: list[Any]) -> list[Any]:
    """The outputs as they are, in rank order."""
    return outputs


def shard_lists(scope: CallScope, *args: Any, **kwargs: Any) -> list[Call | None]:
    """Item r of every argument for rank r.

    Raises:
        TypeError: an argument is no list or tuple.
        ShapeError: an argument has not one item for each worker.
    """
    for label, value in _labelled(args, kwargs):
        if not isinstance(value, list | tuple):
            msg = (
                f"{scope}: {label} is a {type(value).__name__}; DP_COMPUTE wants a list with one item for each of "
                f"the {scope.world_size} workers (repeat it, or register the method as ONE_TO_ALL)"
            )
            raise TypeError(msg)
        if len(value) != scope.world_size:
            msg = (
                f"{scope}: {label} has {len(value)} items; DP_COMPUTE wants one for each of the "
                f"{scope.world_size} workers"
            )
            raise ShapeError(msg)
    return [
        Call(tuple(value[rank] for value in args), {name: value[rank] for name, value in kwargs.items()})
        for rank in range(scope.world_size)
    ]


def split_equally(scope: CallScope, *args: Any, **kwargs: Any) -> list[Call | None]:
    """Equal pieces of every batch; with auto-padding on, the last row is repeated until it divides.

    The caller's batch is not touched; ``concat_unpadded`` takes the rows away again. A future's rows are not known
    here, so its pieces are cut, and checked, on the workers.

    Raises:
        ShapeError: the rows do not divide and auto-padding is off, or several batches differ in rows with it on.
        TypeError: there is no batch among the arguments.
    """
    batches = [value for value in (*args, *kwargs.values()) if isinstance(value, DataProto)]
    pad = 0
    if any(batch.is_padding_enabled() for batch in batches):
        lengths = {len(batch) for batch in batches}
        if len(lengths) > 1:
            msg = f"{scope}: auto-padding wants batches of one length; got {sorted(lengths)}"
            raise ShapeError(msg)
        rows = lengths.pop()
        pad = -rows % scope.world_size
        scope.carry.update(rows=rows, pad=pad)

    def split(value: DataProto | DataProtoFuture) -> Sequence[Any]:
        if isinstance(value, DataProto):
            _check_divides(scope, len(value) + pad)
            value = _padded(value, pad)
        return value.chunk(scope.world_size)

    return list(split_batches(scope, scope.world_size, split, args, kwargs))


def split_for_metrics(scope: CallScope, *args: Any, **kwargs: Any) -> list[Call | None]:
    """As ``split_equally``, but never repeats a row: what it did to a metric could not be taken out again.

    With auto-padding on, pieces differ by at most one row.
    """

    def split(value: DataProto | DataProtoFuture) -> Sequence[Any]:
        if isinstance(value, DataProto) and not value.is_padding_enabled():
            _check_divides(scope, len(value))
        if isinstance(value, DataProto):
            return value.chunk(scope.world_size, allow_uneven=True)
        return value.chunk(scope.world_size)

    return list(split_batches(scope, scope.world_size, split, args, kwargs))


def split_with_function(scope: CallScope, *args: Any, **kwargs: Any) -> list[Call | None]:
    """The first argument, a function, for every worker; the rest as ``split_equally``.

    Raises:
        TypeError: the first argument is no function.
    """
    if not args or not callable(args[0]):
        found = type(args[0]).__name__ if args else "nothing"
        msg = f"{scope}: the first argument must be the function to run on each worker; got {found}"
        raise TypeError(msg)
    return list(split_equally(scope, *args, **kwargs))


def concat_unpadded(scope: CallScope, outputs: list[Any]) -> DataProto:
    """Concatenate the outputs and drop the rows that ``split_equally`` added.

    Raises:
        WorkerError: a worker returned something else than a DataProto, or padding cannot be told from data.
    """
    whole = DataProto.concat([as_batch(scope, rank, output) for rank, output in enumerate(outputs)])
    pad: int = scope.carry.get("pad", 0)
    if not pad or not len(whole):
        return whole
    rows: int = scope.carry["rows"]
    if len(whole) != rows + pad:
        msg = (
            f"{scope} got {rows} rows and {pad} of padding and returned {len(whole)}, so the padding cannot be told "
            "from the data; return one row for each row, or pass a batch that divides by the number of workers"
        )
        raise WorkerError(msg)
    return whole.slice(0, rows)


def refuse_direct(scope: CallScope, *_args: Any, **_kwargs: Any) -> NoReturn:
    """The controller does not call this one."""
    msg = (
        f"{scope} is registered as DIRECT_ROLLOUT_METHOD: it belongs to one worker and is not split over the group; "
        "call it on a member of .workers"
    )
    raise NotImplementedError(msg)


def _check_divides(scope: CallScope, rows: int) -> None:
    if rows % scope.world_size:
        msg = (
            f"{scope}: {rows} rows do not divide into {scope.world_size} equal pieces; pass a multiple of "
            f"{scope.world_size}, switch auto-padding on, or register the method with a mesh mode"
        )
        raise ShapeError(msg)


def _padded(batch: DataProto, pad: int) -> DataProto:
    if not pad:
        return batch
    rows = len(batch)
    return batch.select_idxs([*range(rows), *[rows - 1] * pad])


def _labelled(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    positional = [(f"argument {number}", value) for number, value in enumerate(args)]
    return positional + [(f"argument {name!r}", value) for name, value in kwargs.items()]


BUILTIN_MODES: Final[Mapping[Dispatch, DispatchMode]] = {
    Dispatch[mode.name]: mode
    for mode in (
        DispatchMode("RANK_ZERO", to_rank_zero, first_output, "single"),
        DispatchMode("ONE_TO_ALL", broadcast, all_outputs, "list"),
        DispatchMode("ALL_TO_ALL", broadcast, all_outputs, "list"),
        DispatchMode("DP_COMPUTE", shard_lists, all_outputs, "list"),
        DispatchMode("DP_COMPUTE_PROTO", split_equally, concat_unpadded, "proto"),
        DispatchMode("DP_COMPUTE_PROTO_WITH_FUNC", split_with_function, concat_unpadded, "proto"),
        DispatchMode("DP_COMPUTE_METRIC", split_for_metrics, all_outputs, "list"),
        DispatchMode("DIRECT_ROLLOUT_METHOD", refuse_direct, all_outputs, "list"),
    )
}
