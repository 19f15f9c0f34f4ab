"""The local runtime: workers that live in this process.

One worker runs in the calling thread, so a debugger steps from the loop to the loss. Several workers have a thread
each and meet in memory. What a call does to a batch is the same as in any other runtime, which makes this the place
to test splitting and to try an algorithm. Engines that own their process (NCCL, a CUDA device each) need another
runtime.

Workers share the process: its modules, its random generators, and the tensors of the batches they are given. They
read their input and never write into it.
"""

from __future__ import annotations

import concurrent.futures
import logging
import socket
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from rl_dataproto import DataProto

from rl_core.errors import ConfigError, RlError, WorkerError
from rl_core.runtime.local_collective import CollectiveHub, PeerFailedError
from rl_core.runtime.local_executor import (
    CallDeadlineError,
    Executor,
    InlineExecutor,
    LocalFuture,
    ThreadExecutor,
)
from rl_core.single_controller.base.call import Call, invoke
from rl_core.single_controller.base.collective import Collective, SoloCollective, WorkerContext
from rl_core.single_controller.base.future import WorkerFuture
from rl_core.single_controller.base.progress import Progress, current_progress
from rl_core.single_controller.base.worker import Worker
from rl_core.single_controller.base.worker_group import DEFAULT_DEADLINE_S, WorkerGroup

CLOSE_DEADLINE_S = 5.0
"""How long ``shutdown`` waits for a worker that is still in a call."""

_log = logging.getLogger(__name__)


class _Health:
    """Whether the group can be used; shared with the workers' threads, which must not keep the group alive."""

    def __init__(self, group: str, hub: CollectiveHub) -> None:
        self.group = group
        self.first_failure: RlError | None = None
        self.closed = False
        self.hub = hub
        self._lock = threading.Lock()
        self._has_failed = threading.Event()

    def fail(self, error: RlError) -> RlError:
        """Put a failure on record, release who waits for the failed worker, and give the first failure back."""
        with self._lock:
            self.first_failure = self.first_failure or error
        self._has_failed.set()
        self.hub.abort(str(error))
        return self.first_failure

    def wait_for_failure(self) -> None:
        """Let a failure that released this thread's worker be put on record by the worker that has it."""
        self._has_failed.wait(1.0)

    def check(self, method: str) -> None:
        """Raise ``WorkerError`` if no method can be called any more."""
        if self.closed:
            msg = f"worker group {self.group!r} was shut down; {method} cannot be called"
            raise WorkerError(msg)
        if self.first_failure is not None:
            msg = (
                f"worker group {self.group!r} cannot run {method}: it is broken since its first failure, because its "
                f"workers may be in different states. Build a new group. First failure: {self.first_failure}"
            )
            raise WorkerError(msg) from self.first_failure


class LocalWorkerGroup(WorkerGroup):
    """A worker group in this process."""

    def __init__(
        self,
        worker_cls: type[Worker],
        world_size: int,
        *args: Any,
        deadline_s: float = DEFAULT_DEADLINE_S,
        devices: Sequence[str] | str | None = None,
        name: str = "actor_rollout",
        **kwargs: Any,
    ) -> None:
        """Build ``world_size`` workers, ``worker_cls(context, *args, **kwargs)`` each.

        Args:
            worker_cls: class of the workers.
            world_size: number of workers; one runs in the calling thread, several have a thread each.
            args: for every worker's constructor; the objects are shared.
            deadline_s: seconds that a call, and each wait inside it, may take. Plain code of a single worker cannot
                be stopped.
            devices: device of each worker, or one for all; None is the CPU.
            name: for messages.
            kwargs: as ``args``.

        Raises:
            ConfigError: the number of devices is not the number of workers.
            WorkerError: a constructor failed.
        """
        super().__init__(worker_cls, world_size, name=name, deadline_s=deadline_s)
        device_list = [devices or "cpu"] * world_size if devices is None or isinstance(devices, str) else list(devices)
        if len(device_list) != world_size:
            msg = f"worker group {name!r} has {world_size} workers, but {len(device_list)} devices were given"
            raise ConfigError(msg)
        # The caller's own deadline comes first: it can tell what every worker does.
        self._hub = CollectiveHub(name, deadline_s + 1.0)
        self._health = _Health(name, self._hub)
        self._workers: dict[int, Worker] = {}
        self._executors: list[Executor] = (
            [InlineExecutor(self.worker_names[0], deadline_s)]
            if world_size == 1
            else [ThreadExecutor(worker_name) for worker_name in self.worker_names]
        )
        # A group that nobody shut down must not leave its threads behind.
        self._finalizer = weakref.finalize(self, _stop_all, self._executors)
        port = _free_port()
        futures = []
        for rank, device in enumerate(device_list):
            context = self._context(rank, device, port)
            job = partial(_construct, self._workers, worker_cls, context, args, kwargs)
            futures.append(self._start(rank, "__init__", job, current_progress()))
        try:
            self._gather("__init__", futures)
        except BaseException:
            self._end()
            raise

    @property
    def workers(self) -> list[Worker]:
        """The worker objects, in rank order."""
        return [self._workers[rank] for rank in sorted(self._workers)]

    def shutdown(self) -> None:
        """Close every worker and end its thread; a second time does nothing.

        Raises:
            WorkerError: a worker failed to close, or is still in a call. If the group was broken before, this is
                only logged, so that the first failure is what is seen.
        """
        if not self._health.closed:
            self._end()

    def _end(self) -> None:
        broken = self._health.first_failure is not None
        self._health.closed = True
        closing = [
            self._start(rank, "close", worker.close, Progress()) for rank, worker in sorted(self._workers.items())
        ]
        concurrent.futures.wait(closing, CLOSE_DEADLINE_S)
        problems = [str(_problem(future)) for future in closing if _problem(future) is not None]
        for executor in self._executors:
            stopped = executor.stop(timeout_s=0.0 if problems else CLOSE_DEADLINE_S)
            if not stopped and not problems:
                problems.append(f"{executor.name} did not end within {CLOSE_DEADLINE_S:g} s")
        self._finalizer.detach()
        if problems and broken:
            _log.warning("after its failure, worker group %r did not close cleanly: %s", self.name, "; ".join(problems))
        elif problems:
            msg = f"worker group {self.name!r} did not close cleanly: {'; '.join(problems)}"
            raise WorkerError(msg)

    def _context(self, rank: int, device: str, port: int) -> WorkerContext:
        collective: Collective = SoloCollective()
        if self.world_size > 1:
            collective = self._hub.world(rank, self.world_size)
        return WorkerContext(
            rank=rank,
            world_size=self.world_size,
            local_rank=rank,
            local_world_size=self.world_size,
            device=device,
            collective=collective,
            master_port=port,
        )

    def _submit(self, method: str, calls: Mapping[int, Call], *, materialize: bool) -> list[WorkerFuture]:
        self._health.check(method)
        if any(executor.is_current for executor in self._executors):
            msg = f"a worker of {self.name!r} called its own group ({method}); it would wait for itself"
            raise WorkerError(msg)
        place = current_progress()
        return [
            self._start(
                rank,
                method,
                partial(_run_call, self._hub, self._workers[rank], method, call, materialize, self.deadline_s),
                place,
            )
            for rank, call in calls.items()
        ]

    def _start(self, rank: int, method: str, job: Any, place: Progress) -> LocalFuture:
        label = f"{method} of worker group {self.name!r} on rank {rank} of {self.world_size}"
        if str(place):
            label += f" ({place})"
        future = LocalFuture(label, rank, self.deadline_s)
        self._executors[rank].submit(job, future, partial(_failed, self._health, label))
        return future

    def _gather(self, method: str, futures: Sequence[WorkerFuture]) -> list[Any]:
        pending = cast("Sequence[LocalFuture]", futures)
        _, late = concurrent.futures.wait(pending, self.deadline_s, return_when=concurrent.futures.FIRST_EXCEPTION)
        if self._health.first_failure is not None:
            # The one on record: what else failed did so because of it.
            raise self._health.first_failure
        if late:
            waits = self._hub.waits()
            slow = [future for future in pending if future in late]
            msg = "; ".join(str(future.too_late(self.deadline_s, waits.get(future.rank, ""))) for future in slow)
            raise self._health.fail(CallDeadlineError(msg))
        return [future.result() for future in pending]


def _construct(
    workers: dict[int, Worker],
    worker_cls: type[Worker],
    context: WorkerContext,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    workers[context.rank] = worker_cls(context, *args, **kwargs)


def _run_call(hub: CollectiveHub, worker: Worker, method: str, call: Call, materialize: bool, timeout_s: float) -> Any:
    hub.check_alive(method)
    args = tuple(map(_own_view, call.args))
    kwargs = {name: _own_view(value) for name, value in call.kwargs.items()}
    return invoke(worker, method, Call(args, kwargs, call.answers), materialize=materialize, timeout_s=timeout_s)


def _own_view(value: Any) -> Any:
    """A DataProto of the worker's own over shared columns: what it adds to it, its peers do not see."""
    return value.select() if isinstance(value, DataProto) else value


def _failed(health: _Health, label: str, error: BaseException) -> BaseException:
    """What the caller gets for an exception of a worker."""
    if isinstance(error, PeerFailedError) and error.hub_id == id(health.hub):
        health.wait_for_failure()
        return error
    if isinstance(error, CallDeadlineError) and error.label == label:
        return health.fail(error)
    failure = WorkerError(f"{label} failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    health.fail(failure)
    return failure


def _problem(future: LocalFuture) -> BaseException | None:
    if not future.done():
        return future.too_late(CLOSE_DEADLINE_S)
    return future.exception()


def _stop_all(executors: Sequence[Executor]) -> None:
    for executor in executors:
        executor.stop(timeout_s=0.0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
