"""One call of a worker method: what travels to a worker, and what happens there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rl_dataproto import DataProtoFuture

from rl_core.single_controller.base.future import WorkerFuture

if TYPE_CHECKING:
    from rl_core.single_controller.base.collective import DispatchInfo


@dataclass(frozen=True, slots=True)
class Call:
    """What one worker is called with.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
        answers: False when the output is not wanted (a tensor-parallel peer of the rank that answers): the worker
            drops it, so it is never moved.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    answers: bool = True


@dataclass(frozen=True, slots=True)
class CallScope:
    """What dispatch and collect functions know of the call they work for; one for each call.

    Attributes:
        group: name of the worker group.
        method: name of the method.
        world_size: workers in the group.
        dispatch_info: mesh name -> every worker's ``DispatchInfo``, in rank order; asked once, then remembered.
        carry: what the dispatch function leaves for the collect function of the same call.
    """

    group: str
    method: str
    world_size: int
    dispatch_info: Callable[[str], tuple[DispatchInfo, ...]]
    carry: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.group}.{self.method}"

    def knowing(self, meshes: Mapping[str, tuple[DispatchInfo, ...]]) -> CallScope:
        """The same scope without its group: for a future, which may be collected in another process."""
        return replace(self, dispatch_info=dict(meshes).__getitem__)


def invoke(worker: Any, method: str, call: Call, *, materialize: bool, timeout_s: float | None) -> Any:
    """Run ``method`` of ``worker``; what a runtime does in the worker's process.

    Args:
        worker: the worker object.
        method: a method's name, or ``role.method`` for a role of a fused worker.
        call: the arguments.
        materialize: wait for arguments that are futures.
        timeout_s: for each such wait.

    Returns:
        The output, or None if it is not wanted; an awaitable of it, if the method is a coroutine function.
    """
    args, kwargs = call.args, call.kwargs
    if materialize:
        args = tuple(materialized(value, timeout_s) for value in args)
        kwargs = {name: materialized(value, timeout_s) for name, value in kwargs.items()}
    owner = worker
    *roles, name = method.split(".")
    for role in roles:
        owner = owner.fused_worker_dict[role]
    try:
        output = getattr(owner, name)(*args, **kwargs)
    except Exception as error:
        explained = owner.explained(error)
        if explained is error:
            raise
        raise explained from error
    return output if call.answers else _dropped(output)


def materialized(value: Any, timeout_s: float | None) -> Any:
    """``value``, or what it becomes if it is a future."""
    if isinstance(value, DataProtoFuture):
        return value.get(timeout_s)
    if isinstance(value, WorkerFuture):
        return value.result(timeout_s)
    return value


def _dropped(output: Any) -> Any:
    if not inspect.isawaitable(output):
        return None

    async def finish() -> None:
        await output

    return finish()
