"""The lead's side of a replica: its engine, the version of its weights, and what is in flight."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any

from rl_core.contracts.rollout import RolloutState
from rl_core.errors import RlError, WeightSyncError

from rl_rollout_vllm.engine import Engine, Facts
from rl_rollout_vllm.flights import Flights
from rl_rollout_vllm.in_flight import InFlight
from rl_rollout_vllm.memory import require_freed

_log = logging.getLogger(__name__)


class LeadReplica:
    """A running engine and its state. Also the ``EngineClient`` of its weight sinks.

    Attributes:
        engine: the one that runs now; another one after a restart.
        facts: about it.
        version: policy version of its weights; None when they are missing, partial or discarded.
        flights: the requests in flight.
        is_paused: whether drawing is stopped.
        restarts: engines that died and were replaced.
        freed_bytes: what the last sleep gave back.
        can_take_weights: whether the weights have memory.
    """

    def __init__(
        self, start: Callable[[], Awaitable[Engine]], *, has_device_memory: bool, min_freed_share: float
    ) -> None:
        """``open`` starts the engine.

        Args:
            start: starts one.
            has_device_memory: whether sleeping gives memory back; vLLM's CPU build has no sleep.
            min_freed_share: see ``VllmRolloutConfig.min_freed_share``.
        """
        self._start = start
        self._has_device_memory = has_device_memory
        self._min_freed_share = min_freed_share
        self.engine: Engine
        self.facts: Facts
        self.version: int | None = None
        self.flights = Flights()
        self.is_paused = False
        self.restarts = 0
        self.freed_bytes = 0
        self.can_take_weights = True
        self._failure: str | None = None
        self._resumes_later = False
        self._preemptions = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start the engine; it has no weights."""
        self.engine = await self._start()
        try:
            self.facts = await self.engine.prepare()
        except BaseException:
            await self.engine.close()
            raise
        self._failure = None
        self._preemptions = (await self.engine.rpc("rl_preemptions"))[0]
        self.version = None
        self.is_paused = False

    @property
    def failure(self) -> str | None:
        """Why the engine can serve nothing any more, or None."""
        return "the vLLM engine has died" if self.engine.is_dead else self._failure

    @property
    def is_idle(self) -> bool:
        """See ``EngineClient.is_idle``."""
        return not self.flights

    async def close(self) -> None:
        """Answer what is in flight and end the engine."""
        self.version = None
        await self.abort(None)
        await self.engine.close()

    # Weights: see ``EngineClient``.

    async def rpc(self, method: str, *args: Any) -> list[Any]:
        """See ``EngineClient.rpc``.

        Raises:
            WeightSyncError: the weights are asleep.
        """
        if not self.can_take_weights:
            msg = "weights were offered, but the generator's are asleep; wake them first"
            raise WeightSyncError(msg)
        try:
            return await self.engine.rpc(method, *args)
        except RlError as error:
            # A worker may be half changed, and answers of several workers out of step.
            self.set_version(None)
            self._failure = f"a call of {method} on its workers failed: {error}"
            raise

    def set_version(self, version: int | None) -> None:
        """See ``EngineClient.set_version``; what is in flight is counted to ``version`` from here on."""
        self.version = version
        progress = {item.name: self.engine.progress(item.name) for item in self.flights}
        if version is not None:
            for item in self.flights:
                item.change_version(progress[item.name], version)
            self._end(self.flights.refuse_stale(version, progress))
            if self._resumes_later:
                self._start_task(self.resume())
        elif self.flights and not self.is_paused:
            doomed = list(self.flights)
            for item in doomed:
                item.error = WeightSyncError(
                    f"request {item.request.request_id!r} was in flight when the weights became partial or were discarded; "
                    "pause the engine around an update"
                )
            self._end(doomed)

    def _end(self, items: Sequence[InFlight]) -> None:
        """Abort from where nothing can be awaited."""
        if not items:
            return
        self._start_task(self.engine.abort([item.name for item in items]))

    def _start_task(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Requests.

    async def abort(self, request_ids: Sequence[str] | None) -> None:
        """End requests with what they have."""
        items = self.flights.named(request_ids)
        for item in items:
            self.flights.release(item)
        if items:
            await self.engine.abort([item.name for item in items])

    async def pause(self) -> None:
        """See ``RolloutEngine.pause``."""
        self._resumes_later = False
        await self.engine.pause()
        self.is_paused = True

    async def resume(self) -> None:
        """See ``RolloutEngine.resume``; without whole weights, drawing goes on with the next ones."""
        if self.version is None and self.flights:
            self._resumes_later = True
            return
        self._resumes_later = False
        await self.engine.resume()
        self.is_paused = False

    async def reset_prefix_cache(self) -> None:
        """Forget every prefix; what is in flight is read again with the weights of then."""
        if self.failure is not None:
            return
        pauses = not self.is_paused and not self.is_idle
        if pauses:
            await self.pause()
        try:
            if not await self.engine.forget_prefixes():
                msg = "vLLM did not drop its prefix cache: something holds cached blocks (a connector in engine_kwargs.vllm?)"
                raise RlError(msg)
        finally:
            if pauses and self.failure is None:
                await self.resume()

    async def preemptions(self) -> int:
        """Sequences that had to give their cache away since the last call."""
        before, self._preemptions = self._preemptions, (await self.engine.rpc("rl_preemptions"))[0]
        return self._preemptions - before

    # Memory.

    async def sleep(self, level: int, resident: Collection[RolloutState]) -> None:
        """Give back what is ``resident``."""
        self.can_take_weights = self._resumes_later = False
        await self.abort(None)
        if level == 2:
            self.set_version(None)
        if self.failure is not None or not resident:
            return
        if not self._has_device_memory:
            await self.reset_prefix_cache()
            return
        before = await self.engine.rpc("rl_memory")
        await self.engine.sleep(level)
        self.is_paused = False
        after = await self.engine.rpc("rl_memory")
        self.freed_bytes = require_freed(before, after, resident, level=level, min_share=self._min_freed_share)

    async def wake(self, tags: Collection[RolloutState]) -> None:
        """Take memory for ``tags``, none of which has any."""
        if self.failure is not None:
            await self._replace()
            asleep = {*RolloutState} - set(tags)
            if asleep and self._has_device_memory:
                # A fresh engine is awake as a whole; what nobody asked for goes back.
                await self.engine.sleep(2)
                await self.engine.wake([str(tag) for tag in tags])
        elif self._has_device_memory:
            await self.engine.wake([str(tag) for tag in tags])
        self.can_take_weights = self.can_take_weights or RolloutState.WEIGHTS in tags

    async def _replace(self) -> None:
        _log.warning("rollout 'vllm' starts its engine anew: %s", self.failure)
        self.restarts += 1
        await self.engine.close()
        await self.open()
