"""Continuous stepping: requests come and go while the device works.

Everything here happens on the worker's event loop; a step runs on the device thread meanwhile. What a step has drawn for a
request that was answered in the meantime (aborted, or given up by its caller) is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from rl_core.contracts.rollout import RolloutOutput
from rl_core.errors import RlError

from rl_rollout_hf.in_flight import InFlight
from rl_rollout_hf.scheduler import Drawn, Plan, Scheduler


@dataclass(frozen=True, slots=True)
class Serviceable:
    """The weights that a step would use.

    Attributes:
        version: of the weights.
        handover: which hand-over brought them; what the cache holds of another one is void.
    """

    version: int
    handover: int


class StepLoop:
    """Steps as long as there is something to do."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        state: Callable[[], Serviceable],
        refuse: Callable[[InFlight], Exception | None],
        step: Callable[[Plan], Awaitable[Drawn]],
        with_log_probs: bool,
    ) -> None:
        """Store the arguments; the first request starts the task.

        Args:
            scheduler: decides who runs.
            state: asked before every step; raises when the engine cannot serve, which answers everybody in flight.
            refuse: asked before a request is admitted.
            step: one pass of the device.
            with_log_probs: whether outputs have them.
        """
        self.scheduler = scheduler
        self._state = state
        self._refuse = refuse
        self._device_step = step
        self._with_log_probs = with_log_probs
        self._in_flight: dict[str, InFlight] = {}
        self._has_work = asyncio.Event()
        self._stepping = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._handover = -1
        self._is_paused = False
        self._is_closed = False

    async def serve(self, request_id: str, make: Callable[[asyncio.Future[RolloutOutput]], InFlight]) -> RolloutOutput:
        """Queue what ``make`` returns, and wait for its answer.

        Raises:
            RlError: the engine is closed, or a request of this name is in flight.
        """
        if self._is_closed:
            msg = f"request {request_id!r} came after the engine was closed"
            raise RlError(msg)
        if request_id in self._in_flight:
            msg = f"request {request_id!r} is in flight already; request ids must differ"
            raise RlError(msg)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        item = make(asyncio.get_running_loop().create_future())
        self._in_flight[request_id] = item
        self.scheduler.waiting.append(item)
        self._update()
        try:
            return await item.future
        finally:
            # Also when the caller was cancelled. An answer may have freed the name already, and somebody taken it.
            self._forget(item)

    async def pause(self) -> None:
        """Stop stepping; when this returns, nothing is drawn any more, and nothing in flight is lost."""
        self._is_paused = True
        self._update()
        async with self._stepping:
            pass

    def resume(self) -> None:
        """Step on."""
        self._is_paused = False
        self._update()

    def abort(self, request_ids: Collection[str] | None = None) -> None:
        """Answer these requests (all for None) with what they have."""
        for name in list(self._in_flight) if request_ids is None else request_ids:
            item = self._in_flight.get(name)
            if item is not None:
                item.finish("abort", with_log_probs=self._with_log_probs)
                self._forget(item)

    async def close(self) -> None:
        """Abort what is in flight and end the task."""
        self._is_closed = True
        self.abort()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            async with self._stepping:
                if not self._is_paused:
                    await self._step()
            await asyncio.sleep(0)  # callers and aborts get their turn between steps

    async def _step(self) -> None:
        try:
            state = self._state()
            if state.handover != self._handover:
                self.scheduler.requeue()
                self._handover = state.handover
            plan = self.scheduler.plan(state.version, self._refuse)
            if plan is not None:
                self._add(plan, await self._device_step(plan))
        except Exception as error:  # whoever is in flight gets it; the engine goes on with the next request
            self.scheduler.requeue()
            self.scheduler.waiting.clear()
            for item in list(self._in_flight.values()):
                item.fail(error)
                self._forget(item)

    def _add(self, plan: Plan, drawn: Drawn) -> None:
        for item, token, log_prob, is_sound in zip(
            plan.rows, drawn.tokens, drawn.log_probs, drawn.is_sound, strict=True
        ):
            if item.is_done:
                continue
            if not is_sound:
                item.fail(_unsound(item, plan.version))
                continue
            reason = item.add(token, log_prob, plan.version)
            if reason is not None:
                item.finish(reason, with_log_probs=self._with_log_probs)
                self._forget(item)

    def _forget(self, item: InFlight) -> None:
        if self._in_flight.get(item.request.request_id) is item:
            del self._in_flight[item.request.request_id]
        self._update()

    def _update(self) -> None:
        if self._in_flight and not self._is_paused:
            self._has_work.set()
        else:
            self._has_work.clear()


def _unsound(item: InFlight, version: int) -> RlError:
    msg = (
        f"request {item.request.request_id!r}: the model of version {version} gives logits that are not numbers at response "
        f"position {len(item.tokens)}. Training may have diverged; with float16, try bfloat16 or float32 (rollout.dtype)"
    )
    return RlError(msg)
