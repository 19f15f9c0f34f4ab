"""An event loop in a thread of its own, for the coroutines of a generation engine.

A worker is plain synchronous code; its generation engine is not. The loop runs all the time, so the engine's background
tasks go on while the worker computes, and a weight hand-over can wait for the engine without blocking it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from rl_core.errors import DeadlineError

T = TypeVar("T")

CLOSE_DEADLINE_S = 10.0
"""Seconds that cancelled coroutines get to end."""


class AsyncRunner:
    """Runs coroutines on a persistent event loop and waits for their results."""

    def __init__(self, name: str, *, deadline_s: float | None = None) -> None:
        """Start the loop in a daemon thread called ``name``; ``deadline_s`` bounds every call that names no other."""
        self._deadline_s = deadline_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """The result of ``coroutine``.

        Raises:
            DeadlineError: it took longer than ``timeout_s`` (None: the runner's own deadline); it is cancelled.
        """
        limit = self._deadline_s if timeout_s is None else timeout_s
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(limit)
        except TimeoutError as error:
            if future.done():
                raise  # the coroutine's own timeout, not ours
            future.cancel()
            msg = f"{getattr(coroutine, '__qualname__', 'a coroutine')} did not finish within {limit} s"
            raise DeadlineError(msg) from error

    def close(self) -> None:
        """Stop the loop; what is still running is cancelled."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(CLOSE_DEADLINE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_DEADLINE_S)
        self._loop.close()


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
