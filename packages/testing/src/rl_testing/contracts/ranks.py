"""Several worker processes, as a suite sees them.

A suite never builds workers itself: it asks for ``Ranks`` and sends each of them functions. ``ThreadRanks`` is all that
engines need which can share a process; an engine that cannot brings ranks that are processes (a few lines over Ray actors:
``run`` pickles the function, and what ``build`` made stays over there).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Generic, Protocol, TypeVar

from rl_core.errors import DeadlineError
from rl_core.runtime.local_collective import CollectiveHub
from rl_core.single_controller.base.collective import WorkerContext

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")


class Ranks(Protocol[S_co]):
    """Workers that hold one thing each."""

    size: int

    def outcomes(self, call: Callable[[S_co], T]) -> list[T | Exception]:
        """What ``call`` returned or raised on each rank, run on all of them at the same time."""

    def run(self, rank: int, call: Callable[[S_co], T]) -> T:
        """What ``call`` returns on ``rank`` alone; raises what it raises."""

    def close(self) -> None:
        """End the workers."""


def run_on_all(ranks: Ranks[S], call: Callable[[S], T]) -> list[T]:
    """What ``call`` returned on each rank; raises the first error, if there is one."""
    return _results(ranks.outcomes(call))


class ThreadRanks(Generic[S]):
    """Ranks that are threads of this process, and meet in a collective."""

    def __init__(
        self,
        size: int,
        build: Callable[[WorkerContext], S],
        *,
        dispose: Callable[[S], None] | None = None,
        deadline_s: float = 30.0,
    ) -> None:
        """Call ``build`` on every rank.

        Args:
            size: number of ranks.
            build: makes what a rank holds; may meet the other ranks.
            dispose: ends what ``build`` made.
            deadline_s: how long a rank waits for the others; a call may take as long, and a second more.
        """
        self.size = size
        self._deadline_s = deadline_s
        self._dispose = dispose
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix=f"rank-{rank}") for rank in range(size)]
        hub = CollectiveHub("suite", deadline_s)
        contexts = [
            WorkerContext(
                rank=rank,
                world_size=size,
                local_rank=rank,
                local_world_size=size,
                device="cpu",
                collective=hub.world(rank, size),
            )
            for rank in range(size)
        ]
        self._held: list[S] = _results(self._everywhere([partial(build, context) for context in contexts]))

    def outcomes(self, call: Callable[[S], T]) -> list[T | Exception]:
        """See ``Ranks``."""
        return self._everywhere([partial(call, held) for held in self._held])

    def run(self, rank: int, call: Callable[[S], T]) -> T:
        """See ``Ranks``."""
        return self._wait(rank, self._threads[rank].submit(call, self._held[rank]))

    def close(self) -> None:
        """See ``Ranks``."""
        try:
            if self._dispose is not None:
                run_on_all(self, self._dispose)
        finally:
            for thread in self._threads:
                thread.shutdown(wait=False, cancel_futures=True)

    def _everywhere(self, calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
        futures = [thread.submit(call) for thread, call in zip(self._threads, calls, strict=True)]
        outcomes: list[T | Exception] = []
        for rank, future in enumerate(futures):
            try:
                outcomes.append(self._wait(rank, future))
            except Exception as error:  # an outcome like any other; the caller judges it
                outcomes.append(error)
        return outcomes

    def _wait(self, rank: int, future: Future[T]) -> T:
        limit_s = self._deadline_s + 1.0
        try:
            return future.result(limit_s)
        except TimeoutError as error:
            if future.done():
                raise  # the call's own
            msg = f"rank {rank} did not answer within {limit_s:g} s"
            raise DeadlineError(msg) from error


def _results(outcomes: Sequence[T | Exception]) -> list[T]:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return list(outcomes)  # type: ignore[arg-type]
