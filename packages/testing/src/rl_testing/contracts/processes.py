"""Ranks that are processes and meet in a gloo process group: for engines that own their process.

Starting Python and torch takes seconds, so the processes of a size are kept for the next test that wants as many, and end
with the session. What a test builds in them is dropped when its ranks close. Functions, arguments and results travel
pickled; functions must therefore be importable over there, which those of a test module are not.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import multiprocessing
import os
import pickle
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final, Generic, Literal, TypeVar

from rl_core.errors import DeadlineError, WorkerError
from rl_core.single_controller.base.collective import WorkerContext
from rl_core.single_controller.base.torch_collective import TorchCollective

S = TypeVar("S")
T = TypeVar("T")

START_S: Final = 120.0
"""How long the processes may take to import torch and find each other."""
_GRACE_S: Final = 5.0
"""How much longer than a rank's own deadline its answer is waited for: its error says more than ours."""

_STDERR: Final = 2
"""The file itself: ``sys.stderr`` may have been replaced by something that faulthandler cannot write to."""

Verb = Literal["build", "call", "drop"]


@dataclass(frozen=True, slots=True)
class _Order:
    """What a process is told to do: ``function`` of the context (build), of what is held (call, drop)."""

    verb: Verb
    key: str
    function: Callable[[Any], Any]


class ProcessPool:
    """Processes that stay."""

    def __init__(self, size: int, deadline_s: float) -> None:
        """Start ``size`` processes; they wait ``deadline_s`` for each other in a collective."""
        self.size = size
        self.deadline_s = deadline_s
        self.broken = False
        port = _free_port()
        spawn = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for rank in range(size):
            here, there = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(rank, size, port, deadline_s, there), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        self._receive(range(size), START_S)

    def everywhere(self, order: _Order) -> list[Any]:
        """The outcome on each rank, run on all at the same time: a result or an exception."""
        return self.on(range(self.size), order)

    def on(self, ranks: Sequence[int], order: _Order) -> list[Any]:
        """The outcome on each of ``ranks``."""
        if self.broken:
            msg = f"the pool of {self.size} processes was closed after a rank did not answer"
            return [WorkerError(msg) for _ in ranks]
        message = pickle.dumps(order)
        for rank in ranks:
            self._pipes[rank].send_bytes(message)
        return self._receive(ranks, self.deadline_s + _GRACE_S)

    def close(self) -> None:
        """End the processes."""
        self.broken = True
        for pipe in self._pipes:
            pipe.close()
        ends = time.monotonic() + _GRACE_S
        for process in self._processes:
            process.join(max(0.0, ends - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join(_GRACE_S)

    def _receive(self, ranks: Sequence[int], limit_s: float) -> list[Any]:
        ends = time.monotonic() + limit_s
        outcomes: list[Any] = []
        for rank in ranks:
            pipe = self._pipes[rank]
            try:
                if pipe.poll(max(0.0, ends - time.monotonic())):
                    outcomes.append(pickle.loads(pipe.recv_bytes()))
                    continue
                outcomes.append(DeadlineError(f"rank {rank} of {self.size} did not answer within {limit_s:g} s"))
            except (EOFError, OSError) as error:
                outcomes.append(WorkerError(f"the process of rank {rank} of {self.size} ended: {error!r}"))
            self.broken = True
        if self.broken:
            self.close()
        return outcomes


_pools: dict[int, ProcessPool] = {}


def shared_pool(size: int, deadline_s: float) -> ProcessPool:
    """The pool of this session with ``size`` processes; a new one if there is none, or it is broken or less patient."""
    pool = _pools.get(size)
    if pool is not None and not pool.broken and pool.deadline_s >= deadline_s:
        return pool
    if pool is not None:
        pool.close()
    _pools[size] = ProcessPool(size, deadline_s)
    return _pools[size]


@atexit.register
def close_pools() -> None:
    """End every process that was started here."""
    while _pools:
        _pools.popitem()[1].close()


class ProcessRanks(Generic[S]):
    """Ranks in the processes of a shared pool; see ``Ranks``."""

    def __init__(
        self,
        size: int,
        build: Callable[[WorkerContext], S],
        *,
        dispose: Callable[[S], Any] | None = None,
        deadline_s: float = 60.0,
    ) -> None:
        """Call ``build`` on every rank.

        Args:
            size: number of ranks.
            build: makes what a rank holds; may meet the other ranks.
            dispose: ends what ``build`` made.
            deadline_s: how long a rank waits for the others, and a call may take.
        """
        self.size = size
        self._pool = shared_pool(size, deadline_s)
        self._key = uuid.uuid4().hex
        self._dispose = dispose
        for outcome in self._pool.everywhere(_Order("build", self._key, build)):
            if isinstance(outcome, Exception):
                raise outcome

    def outcomes(self, call: Callable[[S], T]) -> list[T | Exception]:
        """See ``Ranks``."""
        return self._pool.everywhere(_Order("call", self._key, call))

    def run(self, rank: int, call: Callable[[S], T]) -> T:
        """See ``Ranks``."""
        (outcome,) = self._pool.on([rank], _Order("call", self._key, call))
        if isinstance(outcome, Exception):
            raise outcome
        result: T = outcome
        return result

    def close(self) -> None:
        """See ``Ranks``."""
        if self._pool.broken:
            return
        for outcome in self._pool.everywhere(_Order("drop", self._key, self._dispose or _nothing)):
            if isinstance(outcome, Exception):
                raise outcome


def _nothing(held: Any) -> None:
    """Dispose of something that needs no disposing."""


def _serve(rank: int, size: int, port: int, deadline_s: float, pipe: Connection) -> None:
    """A process of a pool: carry out orders until the pipe closes."""
    # Loaded here and not with this module: the parent may not need them.
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    torch.set_num_threads(1)
    limit = timedelta(seconds=max(deadline_s, START_S))
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size, timeout=limit)
    context = WorkerContext(
        rank=rank,
        world_size=size,
        local_rank=rank,
        local_world_size=size,
        device="cpu",
        collective=TorchCollective.of_default_group(deadline_s=deadline_s, name="suite"),
        master_port=port,
    )
    held: dict[str, Any] = {}
    pipe.send_bytes(pickle.dumps(None))
    while True:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            break
        # Where a rank hangs is worth more than that it does.
        faulthandler.dump_traceback_later(deadline_s + _GRACE_S / 2, file=_STDERR)
        outcome = _carry_out(message, context, held)
        faulthandler.cancel_dump_traceback_later()
        pipe.send_bytes(outcome)
    # Peers may be gone already: leaving the group in good order could wait for them.
    os._exit(0)


def _carry_out(message: bytes, context: WorkerContext, held: dict[str, Any]) -> bytes:
    try:
        order: _Order = pickle.loads(message)
        match order.verb:
            case "build":
                held[order.key] = order.function(context)
                return pickle.dumps(None)
            case "call":
                return pickle.dumps(order.function(held[order.key]))
            case "drop":
                result = pickle.dumps(order.function(held.pop(order.key)))
                # The process stays: what refers to itself would keep threads and memory into the tests to come.
                gc.collect()
                return result
    except Exception as error:  # an outcome like any other; the caller judges it
        return _pickled_error(error, context.rank)


def _pickled_error(error: Exception, rank: int) -> bytes:
    try:
        message = pickle.dumps(error)
        pickle.loads(message)
    except Exception:  # an error of any class may refuse to travel; its text always can
        return pickle.dumps(RuntimeError(f"rank {rank}: {type(error).__name__}: {error}"))
    return message


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
