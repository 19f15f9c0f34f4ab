"""The one thread that touches the device, so that the worker's event loop stays free while the model computes.

On the CPU, a step of a very small model takes less time than two threads need to hand it over and warm up; such a step runs
on the loop itself, as long as nothing else is under way. Where it runs changes no number.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

import torch

T = TypeVar("T")

BRIEF_S: Final = 0.005
"""The loop may be blocked for so long."""


class DeviceThread:
    """Runs functions one after another."""

    def __init__(self, name: str, device: torch.device) -> None:
        """Start with the first function."""
        self._device = device
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name, initializer=self._enter)
        self._latest: Future[Any] | None = None
        self._last_s = float("inf")

    async def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """The result of ``function``, which runs after those that were given before it.

        It runs to its end even if the caller is cancelled.
        """
        future = self._latest = self._pool.submit(function, *args, **kwargs)
        return await asyncio.shield(asyncio.wrap_future(future))

    async def run_repeated(self, function: Callable[..., T], *args: Any) -> T:
        """``run`` for what takes about as long each time, and may therefore run on the loop if it is brief."""
        started = time.perf_counter()
        is_idle = self._latest is None or self._latest.done()
        if is_idle and self._device.type == "cpu" and self._last_s < BRIEF_S:
            result = function(*args)
        else:
            result = await self.run(function, *args)
        self._last_s = time.perf_counter() - started
        return result

    def close(self) -> None:
        """End when everything has run that was given."""
        self._pool.shutdown(wait=False)

    def _enter(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
