"""Modes that know that workers form a mesh: some share a piece of the batch, some answer, some only help.

The group asks every worker once which piece it gets and whether it answers. Pipeline and tensor-parallel peers get
the same piece; of each piece one output is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rl_dataproto import DataProto, DataProtoFuture, lengths

from rl_core.contracts.balance import balanced_parts, sequence_costs
from rl_core.errors import WorkerError
from rl_core.metrics import Metric, merge_metrics
from rl_core.single_controller.base.call import Call, CallScope
from rl_core.single_controller.base.collective import DispatchInfo
from rl_core.single_controller.base.mode import DispatchMode, as_batch, split_batches

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLAN_KEY: Final = "mini_batch_plan"
"""Where a plan travels; anything with ``split(dp_size) -> list[(rows, plan of those rows)]``."""

BALANCE_KEY: Final = "balance_rows"
"""Key of ``DataProto.meta_info``: True shares rows out by their work, not in their order, where every row has ``input_ids``."""

_ORDER: Final = "order"


def row_costs(batch: DataProto) -> NDArray[np.float64]:
    """[B] work of each row; see ``sequence_costs``."""
    columns: Any = batch.batch
    return sequence_costs(lengths(columns["input_ids"]).numpy())


def make_nd_compute_dataproto_dispatch_fn(mesh_name: str) -> DispatchMode:
    """Cut every batch over the data-parallel ranks of a mesh; concatenate what the collecting ranks return.

    Pieces differ by at most one row and may be empty. Every other argument goes to all workers as it is. A batch with
    ``BALANCE_KEY`` is cut into pieces of about the same work; rows still come back in the order they went.

    Args:
        mesh_name: what the workers' ``dispatch_info`` is asked for.
    """
    return DispatchMode(
        f"nd_compute_dataproto({mesh_name!r})",
        partial(_dispatch_batch, mesh_name),
        partial(_collect_batch, mesh_name),
        "proto",
    )


def make_nd_gather_dataproto_dispatch_fn(mesh_name: str) -> DispatchMode:
    """Every worker gets the arguments as they are; concatenate what the collecting ranks of a mesh return.

    Args:
        mesh_name: what the workers' ``dispatch_info`` is asked for.
    """
    return DispatchMode(
        f"nd_gather_dataproto({mesh_name!r})",
        partial(_dispatch_whole, mesh_name),
        partial(_collect_batch, mesh_name),
        "proto",
    )


def make_mini_batch_dispatch_fn(mesh_name: str) -> DispatchMode:
    """Cut a batch *inside* each mini-batch of its plan; merge the metrics of the collecting ranks.

    The first argument is a DataProto with a plan in ``meta_info["mini_batch_plan"]``. Every rank of data-parallel
    rank d gets the rows and the plan of part d of ``plan.split(dp_size)``. So the number of workers does not change
    which rows make an optimizer step. Methods return ``dict[str, Metric]``, or a DataProto with it in
    ``meta_info["metrics"]``.

    Args:
        mesh_name: what the workers' ``dispatch_info`` is asked for.
    """
    return DispatchMode(
        f"mini_batch({mesh_name!r})",
        partial(_dispatch_plan, mesh_name),
        partial(_collect_metrics, mesh_name),
    )


def collecting_ranks(scope: CallScope, mesh_name: str) -> list[int]:
    """The rank that answers for each data-parallel rank, in order of the latter.

    Raises:
        WorkerError: the workers' answers do not form a mesh: they disagree about its size, or a data-parallel rank
            has none or several collecting ranks.
    """
    infos = scope.dispatch_info(mesh_name)
    size = _mesh_size(scope, mesh_name, infos)
    collectors: list[list[int]] = [[] for _ in range(size)]
    for rank, info in enumerate(infos):
        if info.is_collect:
            collectors[info.dp_rank].append(rank)
    for dp_rank, ranks in enumerate(collectors):
        if len(ranks) != 1:
            members = [rank for rank, info in enumerate(infos) if info.dp_rank == dp_rank]
            found = f"ranks {ranks} do" if ranks else "none does"
            msg = (
                f"{scope}: exactly one worker must answer for dp_rank {dp_rank} of mesh {mesh_name!r}, but {found} "
                f"(its workers: {members or 'none'}); check is_collect in their dispatch_info"
            )
            raise WorkerError(msg)
    return [ranks[0] for ranks in collectors]


def _mesh_size(scope: CallScope, mesh_name: str, infos: Sequence[DispatchInfo]) -> int:
    sizes = {info.dp_size for info in infos}
    if len(sizes) > 1:
        msg = f"{scope}: workers disagree about dp_size of mesh {mesh_name!r}: {[info.dp_size for info in infos]}"
        raise WorkerError(msg)
    size = sizes.pop()
    for rank, info in enumerate(infos):
        if not 0 <= info.dp_rank < size:
            msg = f"{scope}: rank {rank} says dp_rank {info.dp_rank} of mesh {mesh_name!r}, whose dp_size is {size}"
            raise WorkerError(msg)
    return size


def _for_ranks(scope: CallScope, mesh_name: str, pieces: Sequence[Call]) -> list[Call | None]:
    """Give every rank its data-parallel rank's piece; only collecting ranks send their output back."""
    infos = scope.dispatch_info(mesh_name)
    return [Call(pieces[info.dp_rank].args, pieces[info.dp_rank].kwargs, info.is_collect) for info in infos]


def _dispatch_whole(mesh_name: str, scope: CallScope, *args: Any, **kwargs: Any) -> list[Call | None]:
    size = len(collecting_ranks(scope, mesh_name))
    return _for_ranks(scope, mesh_name, [Call(args, kwargs)] * size)


def _dispatch_batch(mesh_name: str, scope: CallScope, *args: Any, **kwargs: Any) -> list[Call | None]:
    size = len(collecting_ranks(scope, mesh_name))

    parts = _balanced(args, kwargs, size)
    if parts is not None:
        scope.carry[_ORDER] = np.concatenate(parts)

    def split(value: DataProto | DataProtoFuture) -> Sequence[Any]:
        return value.chunk(size, allow_uneven=True) if parts is None else _cut(value, parts)

    return _for_ranks(scope, mesh_name, split_batches(scope, size, split, args, kwargs))


def _balanced(args: Sequence[Any], kwargs: Mapping[str, Any], size: int) -> list[NDArray[np.int64]] | None:
    """Rows of each piece, if the batch asks for it and one batch alone is cut."""
    batches = [value for value in [*args, *kwargs.values()] if isinstance(value, DataProto | DataProtoFuture)]
    batch = batches[0] if len(batches) == 1 else None
    if size == 1 or not isinstance(batch, DataProto):
        return None
    if not batch.meta_info.get(BALANCE_KEY) or batch.batch is None or "input_ids" not in batch.batch.keys():  # noqa: SIM118
        return None
    return balanced_parts(row_costs(batch), size)


def _cut(batch: Any, parts: Sequence[NDArray[np.int64]]) -> list[DataProto]:
    """The rows of every part; they are copied once, for all parts together."""
    together = batch.select_idxs(np.concatenate(parts))
    pieces: list[DataProto] = together.cut(np.cumsum([0, *map(len, parts)]).tolist())
    return pieces


def _collect_batch(mesh_name: str, scope: CallScope, outputs: list[Any]) -> DataProto:
    whole = _concatenated(mesh_name, scope, outputs)
    order = scope.carry.get(_ORDER)
    if order is None:
        return whole
    if len(whole) != len(order):
        msg = f"{scope} was called with {len(order)} rows and returned {len(whole)}; it must return a row for each"
        raise WorkerError(msg)
    return whole.select_idxs(np.argsort(order))


def _concatenated(mesh_name: str, scope: CallScope, outputs: list[Any]) -> DataProto:
    return DataProto.concat(
        [
            as_batch(scope, rank, outputs[rank], f", which answers for dp_rank {dp_rank} of mesh {mesh_name!r}")
            for dp_rank, rank in enumerate(collecting_ranks(scope, mesh_name))
        ]
    )


def _dispatch_plan(mesh_name: str, scope: CallScope, *args: Any, **kwargs: Any) -> list[Call | None]:
    batch = args[0] if args else next(iter(kwargs.values()), None)
    if not isinstance(batch, DataProto):
        msg = f"{scope}: the first argument must be a DataProto with a mini-batch plan; got {type(batch).__name__}"
        raise TypeError(msg)
    if any(isinstance(value, DataProto | DataProtoFuture) for value in [*args, *kwargs.values()][1:]):
        msg = f"{scope}: a plan is about the rows of one batch; join the second one to the first with union"
        raise TypeError(msg)
    if PLAN_KEY not in batch.meta_info:
        msg = (
            f"{scope} takes optimizer steps, so it wants meta_info[{PLAN_KEY!r}]; found the keys "
            f"{sorted(map(str, batch.meta_info))}. The controller plans the mini-batches and sends the plan along."
        )
        raise TypeError(msg)
    size = len(collecting_ranks(scope, mesh_name))
    parts = batch.meta_info[PLAN_KEY].split(size)

    def split(value: Any) -> Sequence[Any]:
        return _planned_parts(value, parts)

    return _for_ranks(scope, mesh_name, split_batches(scope, size, split, args, kwargs))


def _planned_parts(batch: DataProto, parts: Sequence[tuple[Any, Any]]) -> list[DataProto]:
    """The rows of every part with its plan."""
    pieces = _cut(batch, [rows for rows, _ in parts])
    for piece, (_, plan) in zip(pieces, parts, strict=True):
        piece.meta_info = {**piece.meta_info, PLAN_KEY: plan}
    return pieces


def _collect_metrics(mesh_name: str, scope: CallScope, outputs: list[Any]) -> dict[str, Metric]:
    ranks = collecting_ranks(scope, mesh_name)
    return merge_metrics([_reported(scope, rank, outputs[rank]) for rank in ranks])


def _reported(scope: CallScope, rank: int, output: object) -> Mapping[str, Metric]:
    report = output.meta_info.get("metrics") if isinstance(output, DataProto) else output
    if not isinstance(report, Mapping):
        msg = (
            f"{scope} returned {'None' if output is None else f'a {type(output).__name__}'} on rank {rank}; it must "
            "return metrics there: dict[str, Metric], or a DataProto with it in meta_info['metrics']"
        )
        raise WorkerError(msg)
    return report
