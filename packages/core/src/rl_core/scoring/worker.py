"""The process that runs reward functions. It imports the module of the function, and nothing else that takes time.

Plain functions run in the main thread, one after the other, outside any event loop, so a verifier may use signals or a
loop of its own. Coroutine functions share one loop in a second thread, many at a time.
"""

from __future__ import annotations

import inspect
import os
import pickle
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from rl_core.contracts.reward import RewardFailure, RewardResult, missing_reward, parse_reward
from rl_core.scoring.frames import JOB, NUMBER, Kind, frame, read_frame
from rl_core.scoring.limits import limit_core, limit_memory
from rl_core.scoring.plain import encode

if TYPE_CHECKING:
    import asyncio

CANCEL_GRACE_S = 0.5
"""Seconds that a coroutine gets to end after it was cancelled; then its process is ended."""


class _Function:
    """A loaded function, or why it could not be loaded."""

    def __init__(self, pickled: bytes) -> None:
        self.error: RewardResult | None = None
        try:
            function = pickle.loads(pickled)
            self.call: Callable[..., Any] = function.resolve() if hasattr(function, "resolve") else function
        except BaseException as error:  # code of the user's, SystemExit included
            self.error = failed(error, "the reward function could not be loaded: ")
        else:
            self.is_coroutine = inspect.iscoroutinefunction(self.call) or inspect.iscoroutinefunction(
                getattr(self.call, "__call__", None)  # noqa: B004 - whether it is a coroutine function, not whether it is there
            )


class Worker:
    """Reads calls from a socket and answers them until it is closed."""

    def __init__(self, connection: socket.socket) -> None:
        """Store the connection to the pool."""
        self._connection = connection
        self._lock = threading.Lock()
        self._functions: dict[int, _Function] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[Any] = set()
        self._timeout_s = 0.0
        self._memory_mb: int | None = None

    def run(self) -> None:
        """Serve until the pool is gone."""
        stream = cast("BinaryIO", self._connection.makefile("rb", buffering=1 << 16))
        while (received := read_frame(stream)) is not None:
            kind, payload = received
            match kind:
                case Kind.HELLO:
                    self._greet(payload)
                case Kind.FUNCTION:
                    self._load(payload)
                case Kind.CALL:
                    self._call(payload)

    def _send(self, kind: Kind, payload: bytes = b"") -> None:
        with self._lock:
            self._connection.sendall(frame(kind, payload))

    def _greet(self, payload: bytes) -> None:
        path, self._memory_mb, self._timeout_s = pickle.loads(payload)
        sys.path.extend(entry for entry in path if entry not in sys.path)
        limit_core()
        self._send(Kind.READY)

    def _load(self, payload: bytes) -> None:
        (key,) = NUMBER.unpack_from(payload)
        self._functions[key] = _Function(payload[NUMBER.size :])
        # After the load, so that the limit is for what the function itself takes.
        limit_memory(self._memory_mb)
        self._send(Kind.LOADED, payload[: NUMBER.size])

    def _call(self, payload: bytes) -> None:
        number, key, num_rows = JOB.unpack_from(payload)
        function = self._functions[key]
        if function.error is not None:
            self._answer(number, [function.error] * max(num_rows, 1))
            return
        try:
            arguments = pickle.loads(memoryview(payload)[JOB.size :])
        except BaseException as error:  # classes of the data's
            self._answer(number, [failed(error, "the arguments cannot be read in a process: ")] * max(num_rows, 1))
            return
        if function.is_coroutine:
            import asyncio  # noqa: PLC0415 - most functions need no loop, and it takes longer to load than all the rest

            self._send(Kind.ACCEPTED, NUMBER.pack(number))
            serving = self._serve(number, function.call, arguments, num_rows)
            task = asyncio.run_coroutine_threadsafe(serving, self._running_loop())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._answer(number, _outcome(function.call, arguments, num_rows))

    def _answer(self, number: int, results: Sequence[RewardResult]) -> None:
        try:
            encoded = encode(results)
        except BaseException as error:  # a returned object's own methods
            encoded = encode([failed(error, "what the function returned cannot be read: ")] * len(results))
        self._send(Kind.ANSWER, NUMBER.pack(number) + encoded)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        import asyncio  # noqa: PLC0415 - as above

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="coroutines", daemon=True).start()
        return self._loop

    async def _serve(
        self, number: int, function: Callable[..., Any], arguments: Mapping[str, Any], num_rows: int
    ) -> None:
        """Await one call; without an answer the pool ends this process."""
        import asyncio  # noqa: PLC0415 - as above

        task = asyncio.ensure_future(_judged(function, arguments, num_rows))
        done, _ = await asyncio.wait({task}, timeout=self._timeout_s)
        if not done:
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=CANCEL_GRACE_S)
            if not done:
                return
            late = missing_reward(RewardFailure.TIMEOUT, late_text(self._timeout_s))
            self._answer(number, [late] * max(num_rows, 1))
            return
        self._answer(number, task.result())


async def _judged(function: Callable[..., Any], arguments: Mapping[str, Any], num_rows: int) -> list[RewardResult]:
    import asyncio  # noqa: PLC0415 - as above

    try:
        return _parsed(await function(**arguments), num_rows)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return [failed(error)] * max(num_rows, 1)


def _outcome(function: Callable[..., Any], arguments: Mapping[str, Any], num_rows: int) -> list[RewardResult]:
    try:
        value = function(**arguments)
        if inspect.isawaitable(value):
            import asyncio  # noqa: PLC0415 - as above

            value = asyncio.run(_awaited(value))
        return _parsed(value, num_rows)
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: one failure is one missing reward
        return [failed(error)] * max(num_rows, 1)


async def _awaited(value: Any) -> Any:
    return await value


def _parsed(value: Any, num_rows: int) -> list[RewardResult]:
    if not num_rows:
        return [parse_reward(value)]
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or len(value) != num_rows:
        found = f"{len(value)} entries" if hasattr(value, "__len__") else f"a {type(value).__name__}"
        text = (
            f"the function was given {num_rows} rows and returned {found}; return a list with one reward for each row"
        )
        return [missing_reward(RewardFailure.INVALID, text)] * num_rows
    return [parse_reward(item) for item in value]


def failed(error: BaseException, prefix: str = "") -> RewardResult:
    """The missing reward of a function that raised."""
    try:
        text = str(error)
    except BaseException as worse:
        text = f"(its text raised {type(worse).__name__})"
    failure = RewardFailure.MEMORY if isinstance(error, MemoryError) else RewardFailure.ERROR
    return missing_reward(failure, f"{prefix}{type(error).__name__}: {text}")


def late_text(timeout_s: float) -> str:
    """Why a reward that missed its deadline is missing."""
    return f"no score within {timeout_s} s (reward_model.timeout)"


def main(descriptor: int) -> None:
    """Serve on an inherited socket, then end without a word: user code may have left threads that would hold on."""
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    try:
        Worker(connection).run()
    except ConnectionError:
        pass  # the pool is gone
    except BaseException:
        traceback.print_exc()  # a fault of this module: leaving below would lose it, and the pool only sees the end
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
