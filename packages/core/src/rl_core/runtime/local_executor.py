"""Runs the calls of one local worker, one at a time, in the order they were submitted."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rl_core.errors import DeadlineError
from rl_core.single_controller.base.future import WorkerFuture

Job = Callable[[], Any]
Failed = Callable[[BaseException], BaseException]


class CallDeadlineError(DeadlineError):
    """A call as a whole took too long; a worker's own waits raise plain ``DeadlineError``.

    Attributes:
        label: of the call; an error may travel through the workers of other groups.
    """

    label: str = ""


class LocalFuture(concurrent.futures.Future[Any], WorkerFuture):
    """The result of a call on a local worker."""

    def __init__(self, label: str, rank: int, deadline_s: float) -> None:
        """A result that nobody has begun to compute.

        Args:
            label: what is waited for, for messages.
            rank: of the worker.
            deadline_s: how long ``result`` waits unless it is told otherwise.
        """
        super().__init__()
        self.label = label
        self.rank = rank
        self._deadline_s = deadline_s

    def result(self, timeout: float | None = None) -> Any:
        """The result; see ``WorkerFuture``."""
        timeout_s = self._deadline_s if timeout is None else timeout
        try:
            return super().result(timeout_s)
        except TimeoutError as error:
            if self.done():
                raise  # the call's own failure
            raise self.too_late(timeout_s) from error

    def too_late(self, timeout_s: float, detail: str = "") -> CallDeadlineError:
        """The error for a result that did not come; ``detail`` says what its worker does, if that is known."""
        error = CallDeadlineError(f"{self.label} did not finish within {timeout_s:g} s{detail and ': '}{detail}")
        error.label = self.label
        return error


class Executor(ABC):
    """A worker's place to run. Coroutines run on an event loop that lives as long as the worker."""

    def __init__(self, name: str) -> None:
        """Nothing runs yet.

        Args:
            name: of the worker.
        """
        self.name = name
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._running_in: threading.Thread | None = None

    @property
    def is_current(self) -> bool:
        """Whether the caller is a call of this worker."""
        return threading.current_thread() is self._running_in

    @abstractmethod
    def submit(self, job: Job, future: LocalFuture, failed: Failed) -> None:
        """Run ``job``, or the awaitable it returns, and settle ``future``.

        Args:
            job: what to run.
            future: gets the result, or what ``failed`` makes of the exception.
            failed: called in the worker's thread before anyone can see the exception.
        """

    @abstractmethod
    def stop(self, timeout_s: float) -> bool:
        """End after what was submitted; False if something still runs after ``timeout_s``. Repeating it is fine."""

    def _run(self, job: Job, future: LocalFuture, failed: Failed) -> None:
        if not future.set_running_or_notify_cancel():
            return
        self._running_in = threading.current_thread()
        try:
            with _grad_mode_of_a_new_process():
                result = job()
                if inspect.isawaitable(result):
                    result = self._complete(result, future)
        except BaseException as error:
            future.set_exception(failed(error))
            if self._reraises(error):
                raise
        else:
            future.set_result(result)
        finally:
            self._running_in = None

    def _reraises(self, error: BaseException) -> bool:
        return False

    def _complete(self, awaitable: Awaitable[Any], future: LocalFuture) -> Any:
        async def wait() -> Any:
            return await awaitable

        return self._runner.run(wait(), context=contextvars.copy_context())


class InlineExecutor(Executor):
    """Runs in the calling thread, so a debugger steps from the loop into the worker."""

    def __init__(self, name: str, deadline_s: float) -> None:
        """Nothing runs yet.

        Args:
            name: of the worker.
            deadline_s: how long a coroutine may take; plain code cannot be stopped.
        """
        super().__init__(name)
        self._deadline_s = deadline_s
        self._one_at_a_time = threading.Lock()

    def submit(self, job: Job, future: LocalFuture, failed: Failed) -> None:
        """See ``Executor``; when it returns, ``future`` is settled."""
        with self._one_at_a_time:
            self._run(job, future, failed)

    def stop(self, timeout_s: float) -> bool:
        """Close the event loop."""
        self._runner.close()
        return True

    def _reraises(self, error: BaseException) -> bool:
        # Ctrl-C belongs to the caller, whose thread this is.
        return not isinstance(error, Exception)

    def _complete(self, awaitable: Awaitable[Any], future: LocalFuture) -> Any:
        async def wait() -> Any:
            try:
                async with asyncio.timeout(self._deadline_s) as limit:
                    return await awaitable
            except TimeoutError as error:
                if not limit.expired():
                    raise  # the call's own failure
                raise future.too_late(self._deadline_s) from error

        context = contextvars.copy_context()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._runner.run(wait(), context=context)
        # A notebook runs a loop in this thread already; a second one needs another thread.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(self._runner.run, wait(), context=context).result()


class ThreadExecutor(Executor):
    """Runs in one thread of its own, so what is local to a thread stays with the worker."""

    def __init__(self, name: str) -> None:
        """Start the thread. It is a daemon: a worker that hangs does not keep the process alive."""
        super().__init__(name)
        self._jobs: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job, future: LocalFuture, failed: Failed) -> None:
        """See ``Executor``; returns at once."""
        self._jobs.put((job, future, failed))

    def stop(self, timeout_s: float) -> bool:
        """Let the thread end, and wait for it."""
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        try:
            while (item := self._jobs.get()) is not None:
                self._run(*item)
                # Waiting for the next call must not keep the last one's batch alive.
                del item
        finally:
            self._runner.close()


@contextmanager
def _grad_mode_of_a_new_process() -> Iterator[None]:
    """Gradients are on for a call, whatever its caller, or the call before it in this thread, switched off."""
    import torch  # noqa: PLC0415 - only a running worker needs tensors, not who chooses a runtime

    with torch.inference_mode(False), torch.enable_grad():
        yield
