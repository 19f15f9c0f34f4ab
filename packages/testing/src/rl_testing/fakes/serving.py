"""Continuous stepping: what is in flight advances together, one token a step, and new requests enter as others end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rl_core.contracts.rollout import FinishReason, RolloutOutput, RolloutRequest
from rl_core.errors import RlError


@dataclass(eq=False, slots=True)
class InFlight:
    """A response that is being made.

    Attributes:
        request: what was asked.
        future: the caller waits for it.
        tokens: response so far, what the request began with included.
        log_probs: one for each token drawn here; stays empty in an engine that has none.
        versions: policy version of each token drawn here.
        extras: lists, one entry for each token.
        state: what the engine remembers of the prefix.
    """

    request: RolloutRequest
    future: asyncio.Future[RolloutOutput]
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    extras: dict[str, list[int]] = field(default_factory=dict)
    state: Any = None

    def __post_init__(self) -> None:
        self.tokens = [*self.request.response_ids, *self.tokens]

    def finish(self, reason: FinishReason) -> None:
        """Answer with what is there."""
        if self.future.done():
            return
        drawn = self.tokens[len(self.request.response_ids) :]
        output = RolloutOutput(
            request_id=self.request.request_id,
            token_ids=tuple(drawn),
            log_probs=tuple(self.log_probs) if len(self.log_probs) == len(drawn) else None,
            finish_reason=reason,
            versions=version_spans(self.versions),
            extras={name: np.array(values, dtype=np.int64) for name, values in self.extras.items()},
        )
        self.future.set_result(output)

    def fail(self, error: Exception) -> None:
        """Answer with an error."""
        if not self.future.done():
            self.future.set_exception(error)


def version_spans(versions: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Versions of single tokens as ``(version, count)`` spans in order."""
    spans: list[tuple[int, int]] = []
    for version in versions:
        if spans and spans[-1][0] == version:
            spans[-1] = (version, spans[-1][1] + 1)
        else:
            spans.append((version, 1))
    return tuple(spans)


class StepLoop:
    """The engine's scheduler. Everything in it happens on one event loop."""

    def __init__(self, advance: Callable[[InFlight], FinishReason | None], max_num_seqs: int) -> None:
        """Store the arguments; the first request starts the task.

        Args:
            advance: adds one token to a response and says whether that ends it; an error ends that response alone.
            max_num_seqs: responses that advance together; the others wait in order of arrival.
        """
        self._advance = advance
        self._max_num_seqs = max_num_seqs
        self._waiting: deque[InFlight] = deque()
        self._running: list[InFlight] = []
        self._has_work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_paused = False
        self._is_closed = False

    async def serve(self, request: RolloutRequest) -> RolloutOutput:
        """Wait for the response to ``request``.

        Raises:
            RlError: the engine is closed, or a request of this name is in flight.
        """
        if self._is_closed:
            msg = f"request {request.request_id!r} came after the engine was closed"
            raise RlError(msg)
        if any(item.request.request_id == request.request_id for item in self._in_flight()):
            msg = f"request {request.request_id!r} is in flight already; request ids must differ"
            raise RlError(msg)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        item = InFlight(request, asyncio.get_running_loop().create_future())
        self._waiting.append(item)
        self._update()
        try:
            return await item.future
        finally:
            self._drop(item)  # the caller may have been cancelled

    def pause(self) -> None:
        """Stop stepping; nothing in flight is lost."""
        self._is_paused = True
        self._update()

    def resume(self) -> None:
        """Step on."""
        self._is_paused = False
        self._update()

    def abort(self, request_ids: Collection[str] | None = None) -> None:
        """Answer these requests (all for None) with what they have."""
        for item in self._in_flight():
            if request_ids is None or item.request.request_id in request_ids:
                item.finish("abort")
                self._drop(item)

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
            self._step()
            await asyncio.sleep(0)  # callers and aborts get their turn between steps

    def _step(self) -> None:
        while self._waiting and len(self._running) < self._max_num_seqs:
            self._running.append(self._waiting.popleft())
        for item in list(self._running):
            try:
                reason = self._advance(item)
            except Exception as error:  # the caller of this one request gets it
                item.fail(error)
                self._drop(item)
                continue
            if reason is not None:
                item.finish(reason)
                self._drop(item)

    def _in_flight(self) -> list[InFlight]:
        return [*self._running, *self._waiting]

    def _drop(self, item: InFlight) -> None:
        for queue in (self._running, self._waiting):
            if item in queue:
                queue.remove(item)
        self._update()

    def _update(self) -> None:
        if (self._running or self._waiting) and not self._is_paused:
            self._has_work.set()
        else:
            self._has_work.clear()
