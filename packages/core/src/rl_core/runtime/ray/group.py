"""The Ray worker group: one actor for each place of a pool."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from rl_core.errors import ConfigError, DeadlineError, PluginError, RlError, WorkerError
from rl_core.plugins import compare_tables, get_registry
from rl_core.runtime.ray.answers import read, wait_for
from rl_core.runtime.ray.future import RayFuture
from rl_core.runtime.ray.health import Member
from rl_core.runtime.ray.host import Place, RemoteFailure, Seat, WorkerHost
from rl_core.runtime.ray.link import RunLink
from rl_core.runtime.ray.payload import ship
from rl_core.runtime.ray.processes import end_processes, families
from rl_core.single_controller.base.call import Call
from rl_core.single_controller.base.fused import ClassWithInitArgs
from rl_core.single_controller.base.progress import current_progress
from rl_core.single_controller.base.worker_group import DEFAULT_DEADLINE_S, WorkerGroup

if TYPE_CHECKING:
    from rl_core.runtime.ray.pool import RayResourcePool
    from rl_core.single_controller.base.future import WorkerFuture
    from rl_core.single_controller.base.worker import Worker

RayClassWithInitArgs = ClassWithInitArgs
"""The seeds' name for a worker class with what its constructor gets besides the context."""

_START_KEY = "trainer.ray_wait_register_center_timeout"
_CLOSE_DEADLINE_S = 60.0
"""Seconds that workers get to give back what they hold: a big engine takes its time."""
_GOING_S = 2.0
"""Seconds a killed process has to go before it is killed harder."""


class RayWorkerGroup(WorkerGroup):
    """A worker group whose members are Ray actors."""

    def __init__(
        self,
        resource_pool: RayResourcePool,
        ray_cls_with_init: ClassWithInitArgs,
        *,
        name: str = "workers",
        deadline_s: float = DEFAULT_DEADLINE_S,
        link: RunLink | None = None,
        detached: bool = False,
    ) -> None:
        """Start one actor on each place of the pool, let them meet, and build the workers.

        Args:
            resource_pool: reserved places.
            ray_cls_with_init: the worker class and its arguments.
            name: for messages; with ``detached``, what ``from_detached`` finds the group by.
            deadline_s: seconds that a method call may take.
            link: what the groups of a run share; None for a group of its own.
            detached: the workers outlive this process, until someone shuts the group down.

        Raises:
            ConfigError: the pool is not reserved, or a detached group of this name exists.
            DeadlineError: the actors did not start, or the workers were not built, in time.
            PluginError: a worker has other plugins than this process.
            WorkerError: a constructor failed.
        """
        if not resource_pool.slots:
            msg = f"worker group {name!r}: its pool {resource_pool.name_prefix!r} is not reserved; call reserve() first"
            raise ConfigError(msg)
        if detached and not resource_pool.detached:
            msg = (
                f"worker group {name!r} is to outlive this process, but its pool {resource_pool.name_prefix!r} ends with it; "
                "make the pool with detached=True"
            )
            raise ConfigError(msg)
        super().__init__(ray_cls_with_init.cls, resource_pool.world_size, name=name, deadline_s=deadline_s)
        self._link = link or RunLink()
        self._members: list[Member] = []
        self._closed = False
        self._handles = _start_actors(resource_pool, name, self._link, detached=detached)
        try:
            places = self._placed()
            self._members = self._seen_at(places)
            self._check_plugins(places)
            self._link.health.enrol(self._members)
            self._build(places, ray_cls_with_init)
        except BaseException:
            self.shutdown()
            raise

    @classmethod
    def from_detached(
        cls,
        name: str,
        worker_cls: type[Worker],
        world_size: int,
        *,
        deadline_s: float = DEFAULT_DEADLINE_S,
        link: RunLink | None = None,
    ) -> Self:
        """A handle on a detached group that some process has started in this Ray namespace.

        Raises:
            WorkerError: a worker of that name is not there.
        """
        import ray  # noqa: PLC0415 - layers above choose a runtime without loading Ray

        group = cls.__new__(cls)
        WorkerGroup.__init__(group, worker_cls, world_size, name=name, deadline_s=deadline_s)
        group._link = link or RunLink()
        group._closed = False
        try:
            group._handles = [ray.get_actor(f"{name}/{rank}") for rank in range(world_size)]
        except ValueError as error:
            msg = (
                f"there is no detached worker group {name!r} with {world_size} workers in the Ray namespace "
                f"{ray.get_runtime_context().namespace!r}: {error}"
            )
            raise WorkerError(msg) from error
        group._members = []
        places = group._placed()
        sizes = {place.world_size for place in places}
        if sizes != {world_size}:
            msg = f"detached worker group {name!r} was asked for with {world_size} workers; it has {max(sizes)}"
            raise WorkerError(msg)
        group._members = group._seen_at(places)
        group._link.health.enrol(group._members)
        return group

    @property
    def workers(self) -> Sequence[Any]:
        """Handles of the actors, in rank order."""
        return list(self._handles)

    @property
    def members(self) -> Sequence[Member]:
        """Where each worker lives, in rank order."""
        return list(self._members)

    def shutdown(self) -> None:
        """Close the workers and end their processes; a second time does nothing."""
        import ray  # noqa: PLC0415 - as above

        if self._closed:
            return
        self._closed = True
        self._link.health.dismiss(self._members)
        if not ray.is_initialized():
            return
        waited_for = {pending.member.name for _, pending in self._link.health.pending()}
        is_sound = self._link.health.failure is None and not waited_for & {member.name for member in self._members}
        problem = self._close() if is_sound and self._members else None
        processes = families(self._members)
        for handle in self._handles:
            ray.kill(handle)
        # A process that is stopped, or what a worker has started, does not end because Ray says so.
        end_processes(processes, _GOING_S)
        self._link.read_rest(self._members)
        if problem is not None:
            raise problem

    def _close(self) -> RlError | None:
        """Let the workers give back what they hold; what went wrong."""
        refs = [handle.close.remote() for handle in self._handles]
        futures = self._start("close", refs, range(self.world_size), _CLOSE_DEADLINE_S)
        try:
            wait_for(futures, self._link, _CLOSE_DEADLINE_S, "what a worker gets to close")
        except RlError as error:
            return WorkerError(f"worker group {self.name!r} did not close cleanly: {error}")
        return None

    def _placed(self) -> list[Place]:
        """Where the actors are, once they run."""
        import ray  # noqa: PLC0415 - as above

        refs = [handle.place.remote(self._link.on_cuda) for handle in self._handles]
        limit_s = self._link.start_deadline_s
        ends = time.monotonic() + limit_s
        missing = refs
        while missing:
            left_s = ends - time.monotonic()
            ready, missing = ray.wait(missing, num_returns=len(missing), timeout=max(min(0.5, left_s), 0.0))
            for ref, error in read(ready)[1].items():
                # A failure of the worker's own process says all; Ray's traceback around it does not help.
                cause = getattr(error, "cause", None)
                told = cause if isinstance(cause, RemoteFailure) else error
                msg = f"rank {refs.index(ref)} of {self.world_size} of worker group {self.name!r} did not start: {told}"
                raise WorkerError(self._link.health.redact(msg)) from error
            if missing and self._link.health.failure is not None:
                raise self._link.health.told()
            if missing and left_s <= 0:
                late = [rank for rank, ref in enumerate(refs) if ref in missing]
                msg = (
                    f"worker group {self.name!r}: ranks {late} of {self.world_size} did not start within {limit_s:g} s "
                    f"({_START_KEY}); see Ray's logs of their nodes"
                )
                raise DeadlineError(msg)
        return cast("list[Place]", ray.get(refs))

    def _seen_at(self, places: Sequence[Place]) -> list[Member]:
        """The workers as the driver knows them."""
        return [
            Member(
                name=f"{self.name}/{rank}",
                group=self.name,
                rank=rank,
                world_size=self.world_size,
                node_id=place.node_id,
                node_ip=place.node_ip,
                pid=place.pid,
                born=place.born,
                handle=handle,
                files=place.files,
            )
            for rank, (place, handle) in enumerate(zip(places, self._handles, strict=True))
        ]

    def _check_plugins(self, places: Sequence[Place]) -> None:
        table = get_registry().plugin_table()
        for member, place in zip(self._members, places, strict=True):
            if difference := compare_tables(table, place.plugins):
                msg = f"{member}: {difference}"
                raise PluginError(msg)

    def _build(self, places: Sequence[Place], make: ClassWithInitArgs) -> None:
        """Give every worker its seat, let them meet, and construct them."""
        import ray  # noqa: PLC0415 - as above
        from ray import cloudpickle  # noqa: PLC0415

        limit_s = self._link.start_deadline_s
        store_port = master_port = 0
        if self.world_size > 1:
            future = self._start("open_store", [self._handles[0].open_store.remote(limit_s)], [0], limit_s)
            [(store_port, master_port)] = wait_for(future, self._link, limit_s, _START_KEY)
        pickled = ray.put(cloudpickle.dumps(make))
        refs = [
            handle.build.remote(seat, pickled, self._link.board, self._link.beat_s)
            for seat, handle in zip(self._seats(places, store_port, master_port), self._handles, strict=True)
        ]
        wait_for(self._start("__init__", refs, range(self.world_size), limit_s), self._link, limit_s, _START_KEY)

    def _seats(self, places: Sequence[Place], store_port: int, master_port: int) -> list[Seat]:
        homes = [place.node_id for place in places]
        return [
            Seat(
                rank=rank,
                world_size=self.world_size,
                local_rank=homes[:rank].count(home),
                local_world_size=homes.count(home),
                master_addr=places[0].node_ip,
                master_port=master_port,
                store_port=store_port,
                device=places[rank].device,
                collective_deadline_s=self._link.collective_deadline_s,
            )
            for rank, home in enumerate(homes)
        ]

    def _submit(self, method: str, calls: Mapping[int, Call], *, materialize: bool) -> list[WorkerFuture]:
        if self._closed:
            msg = f"worker group {self.name!r} was shut down; {method} cannot be called"
            raise WorkerError(msg)
        self._raise_if_failed(method)
        place = current_progress()
        refs = [
            self._handles[rank].call.remote(method, call, materialize, self.deadline_s, place)
            for rank, call in ship(calls).items()
        ]
        return list(self._start(method, refs, list(calls), self.deadline_s))

    def _start(self, method: str, refs: Sequence[Any], ranks: Sequence[int], limit_s: float) -> list[RayFuture]:
        place = current_progress()
        futures = []
        for ref, rank in zip(refs, ranks, strict=True):
            label = f"{method} of worker group {self.name!r} on rank {rank} of {self.world_size}"
            if self._members:
                self._link.health.called(ref, self._members[rank], method, place)
            future = RayFuture(ref, label, limit_s, self._wait_for_one)
            # A result that nobody here will ask for (it was passed on to other workers) is none that the driver waits for.
            weakref.finalize(future, self._link.health.forget, ref).atexit = False
            futures.append(future)
        return futures

    def _wait_for_one(self, future: RayFuture, timeout_s: float | None) -> Any:
        if timeout_s is None:
            return self._gather(future.label, [future])[0]
        return wait_for([future], self._link, timeout_s, "as its caller asked")[0]

    def _gather(self, method: str, futures: Sequence[WorkerFuture]) -> list[Any]:
        return wait_for(cast("Sequence[RayFuture]", futures), self._link, self.deadline_s, "trainer.worker_deadline_s")

    def _raise_if_failed(self, method: str) -> None:
        failure = self._link.health.failure
        if failure is None:
            return
        if not self._link.health.is_told:
            raise self._link.health.told()
        msg = f"worker group {self.name!r} cannot run {method}: the run has failed. First failure: {failure}"
        raise WorkerError(msg) from failure


_SEES_ALL_DEVICES: Mapping[str, Any] = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
"""Workers see every device of their node and take the one they were assigned: a generation engine's lead needs its
peers' devices too. Ray reads the variable before it makes the actor, so the actor cannot set it for itself."""


def _start_actors(pool: RayResourcePool, name: str, link: RunLink, *, detached: bool) -> list[Any]:
    import ray  # noqa: PLC0415 - as above

    actor_class = ray.remote(max_restarts=0, max_task_retries=0)(WorkerHost)
    handles = []
    try:
        for rank in range(pool.world_size):
            options: dict[str, Any] = pool.options(rank)
            if link.on_cuda:
                options |= {"runtime_env": _SEES_ALL_DEVICES}
            if detached:
                options |= {"name": f"{name}/{rank}", "lifetime": "detached"}
            handles.append(
                actor_class.options(**options).remote(name, dict(link.environment), link.directory, link.import_path)
            )
    except ValueError as error:
        for handle in handles:
            ray.kill(handle)
        msg = f"worker group {name!r} could not be started: {error}"
        raise ConfigError(msg) from error
    return handles
