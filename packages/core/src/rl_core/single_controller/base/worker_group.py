"""The controller's handle on a group of workers: the methods of one worker, called on all of them.

Here is what every runtime shares: binding, splitting, gathering. A runtime adds where workers live (``_submit``,
``_gather``, ``shutdown``).
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from rl_dataproto import DataProtoFuture

from rl_core.errors import ConfigError, WorkerError
from rl_core.single_controller.base.call import Call, CallScope
from rl_core.single_controller.base.collective import DispatchInfo
from rl_core.single_controller.base.decorator import MethodSpec, method_specs, resolve_mode
from rl_core.single_controller.base.fused import FusedWorker
from rl_core.single_controller.base.future import CollectedFuture, WorkerFuture
from rl_core.single_controller.base.mode import DispatchMode

DEFAULT_DEADLINE_S = 3600.0
"""How long a call may take unless the group was told otherwise."""


class WorkerGroup(ABC):
    """Workers of one class; its registered methods are methods of the group.

    ``group.method(...)`` waits for the result as ``register`` says; ``group.method.start(...)`` never does and returns what a
    method that does not block returns.
    """

    def __init__(self, worker_cls: type, world_size: int, *, name: str, deadline_s: float = DEFAULT_DEADLINE_S) -> None:
        """Bind the methods of ``worker_cls``.

        Args:
            worker_cls: class of the workers; of a ``FusedWorker``, the roles' methods are bound with their prefix.
            world_size: number of workers.
            name: for messages.
            deadline_s: seconds that a call, and each wait inside it, may take.

        Raises:
            ConfigError: two methods would have one name on the group, or ``world_size`` is below 1.
            PluginError: a method's dispatch mode is a plugin's that does not load.
        """
        if world_size < 1:
            msg = f"worker group {name!r} needs at least one worker; world_size is {world_size}"
            raise ConfigError(msg)
        self.name = name
        self.deadline_s = deadline_s
        self._worker_cls = worker_cls
        self._world_size = world_size
        self._meshes: dict[str, dict[str, tuple[DispatchInfo, ...]]] = {}
        self._bind(worker_cls, role="")
        if issubclass(worker_cls, FusedWorker):
            for role, build in worker_cls.role_classes.items():
                self._bind(build.cls, role=role)

    @property
    def world_size(self) -> int:
        """Number of workers."""
        return self._world_size

    @property
    @abstractmethod
    def workers(self) -> Sequence[Any]:
        """The workers, or the runtime's handles on them, in rank order."""

    @property
    def worker_names(self) -> list[str]:
        """A name for each worker, in rank order."""
        return [f"{self.name}/{rank}" for rank in range(self.world_size)]

    @abstractmethod
    def _submit(self, method: str, calls: Mapping[int, Call], *, materialize: bool) -> list[WorkerFuture]:
        """Start the call of each rank; calls of one worker run one at a time, in the order they were submitted."""

    @abstractmethod
    def _gather(self, method: str, futures: Sequence[WorkerFuture]) -> list[Any]:
        """All results in order; the first failure is raised as soon as it is known, without waiting for the rest."""

    @abstractmethod
    def shutdown(self) -> None:
        """End the workers; a second time does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def execute_rank_zero_async(self, method_name: str, *args: Any, **kwargs: Any) -> WorkerFuture:
        """Start any method on rank 0, arguments untouched."""
        return self._submit(method_name, {0: Call(args, kwargs)}, materialize=True)[0]

    def execute_rank_zero_sync(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Run any method on rank 0; its output."""
        return self._gather(method_name, [self.execute_rank_zero_async(method_name, *args, **kwargs)])[0]

    def execute_rank_zero(self, method_name: str, *args: Any, **kwargs: Any) -> WorkerFuture:
        """The same as ``execute_rank_zero_async``."""
        return self.execute_rank_zero_async(method_name, *args, **kwargs)

    def execute_all_async(self, method_name: str, *args: Any, **kwargs: Any) -> list[WorkerFuture]:
        """Start any method on every worker; each gets all arguments whole, lists too."""
        call = Call(args, kwargs)
        return self._submit(method_name, dict.fromkeys(range(self.world_size), call), materialize=True)

    def execute_all_sync(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Run any method on every worker, arguments whole; the outputs in rank order."""
        return self._gather(method_name, self.execute_all_async(method_name, *args, **kwargs))

    def execute_all(self, method_name: str, *args: Any, **kwargs: Any) -> list[WorkerFuture]:
        """The same as ``execute_all_async``."""
        return self.execute_all_async(method_name, *args, **kwargs)

    def dispatch_info(self, mesh_name: str) -> tuple[DispatchInfo, ...]:
        """Every worker's part in a mesh, in rank order; asked once.

        Raises:
            WorkerError: a worker does not know the mesh, or answers something else.
        """
        return self._dispatch_info("", mesh_name)

    def spawn(self, prefix_set: Collection[str]) -> dict[str, WorkerGroup]:
        """One view for each role of fused workers; methods have their plain names there.

        The views share the workers: when the last one is shut down, the workers end.

        Raises:
            ConfigError: the workers have no such role.
        """
        roles = self._worker_cls.role_classes if issubclass(self._worker_cls, FusedWorker) else {}
        unknown = sorted(set(prefix_set) - set(roles))
        if unknown:
            found = f"its roles are {', '.join(roles)}" if roles else "its workers are not fused"
            msg = f"worker group {self.name!r} has no role {', '.join(unknown)}; {found}"
            raise ConfigError(msg)
        open_views = set(prefix_set)
        return {role: RoleGroup(self, role, roles[role].cls, open_views) for role in prefix_set}

    def _bind(self, cls: type, role: str) -> None:
        for name, spec in method_specs(cls).items():
            bound_name = f"{role}_{name}" if role else name
            if hasattr(type(self), bound_name) or bound_name in vars(self):
                msg = (
                    f"{cls.__name__}.{name} would be {bound_name!r} on the worker group, which has something of that "
                    "name already; rename the method (or the role)"
                )
                raise ConfigError(msg)
            setattr(self, bound_name, self._bound_method(getattr(cls, name), role, name, spec))

    def _bound_method(self, original: Callable[..., Any], role: str, name: str, spec: MethodSpec) -> Callable[..., Any]:
        mode = resolve_mode(spec)
        remote_name = f"{role}.{name}" if role else name

        @functools.wraps(original)
        def method(*args: Any, **kwargs: Any) -> Any:
            return self._execute(role, remote_name, mode, spec, args, kwargs)

        @functools.wraps(original)
        def start(*args: Any, **kwargs: Any) -> Any:
            return self._execute(role, remote_name, mode, replace(spec, blocking=False), args, kwargs)

        method.start = start  # type: ignore[attr-defined]
        signature = inspect.signature(original)
        _self, *parameters = signature.parameters.values()
        method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return method

    def _execute(
        self,
        role: str,
        method: str,
        mode: DispatchMode,
        spec: MethodSpec,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Dispatch, run, collect."""
        scope = CallScope(self.name, method, self.world_size, functools.partial(self._dispatch_info, role))
        calls = mode.dispatch_fn(scope, *args, **kwargs)
        self._check_calls(scope, mode, calls)
        chosen = {rank: call for rank, call in enumerate(calls) if call is not None}
        futures = self._submit(method, chosen, materialize=spec.materialize_futures)
        if spec.blocking:
            return mode.collect_fn(scope, self._gather(method, futures))
        collect = functools.partial(mode.collect_fn, scope.knowing(self._meshes.get(role, {})))
        match mode.result:
            case "single":
                return futures[0]
            case "list":
                return futures
            case "proto":
                return DataProtoFuture(collect, futures)
            case "value":
                return CollectedFuture(collect, futures)

    def _check_calls(self, scope: CallScope, mode: DispatchMode, calls: Sequence[Call | None]) -> None:
        fits = isinstance(calls, Sequence) and len(calls) == self.world_size
        if not fits or not all(call is None or isinstance(call, Call) for call in calls):
            msg = (
                f"dispatch mode {mode.name} must give a Call (or None) for each of the {self.world_size} workers of "
                f"{scope}; it gave {calls!r}"
            )
            raise TypeError(msg)
        if all(call is None for call in calls):
            msg = f"dispatch mode {mode.name} calls no worker at all for {scope}"
            raise TypeError(msg)

    def _dispatch_info(self, role: str, mesh_name: str) -> tuple[DispatchInfo, ...]:
        known = self._meshes.setdefault(role, {})
        if mesh_name not in known:
            infos = self.execute_all_sync(f"{role}.dispatch_info" if role else "dispatch_info", mesh_name)
            for rank, info in enumerate(infos):
                if not isinstance(info, DispatchInfo):
                    msg = (
                        f"worker group {self.name!r}: rank {rank} answered dispatch_info({mesh_name!r}) with "
                        f"{info!r}; it must return a DispatchInfo"
                    )
                    raise WorkerError(msg)
            known[mesh_name] = tuple(infos)
        return known[mesh_name]


class RoleGroup(WorkerGroup):
    """One role of a group of fused workers, as if it were a group of its own."""

    def __init__(self, parent: WorkerGroup, role: str, role_cls: type, open_views: set[str]) -> None:
        """Bind the role's methods without their prefix.

        Args:
            parent: the group that has the workers.
            role: name of the role.
            role_cls: its class.
            open_views: roles whose view is in use, shared by all views that were spawned together.
        """
        self._parent = parent
        self._role = role
        self._open_views = open_views
        super().__init__(role_cls, parent.world_size, name=f"{parent.name}.{role}", deadline_s=parent.deadline_s)

    @property
    def workers(self) -> Sequence[Any]:
        """The fused workers (or handles), in rank order."""
        return self._parent.workers

    def _submit(self, method: str, calls: Mapping[int, Call], *, materialize: bool) -> list[WorkerFuture]:
        if self._role not in self._open_views:
            msg = f"worker group {self.name!r} was shut down; {method} cannot be called"
            raise WorkerError(msg)
        return self._parent._submit(f"{self._role}.{method}", calls, materialize=materialize)

    def _gather(self, method: str, futures: Sequence[WorkerFuture]) -> list[Any]:
        return self._parent._gather(f"{self._role}.{method}", futures)

    def shutdown(self) -> None:
        """Close this view; the workers end with the last view."""
        self._open_views.discard(self._role)
        if not self._open_views:
            self._parent.shutdown()
