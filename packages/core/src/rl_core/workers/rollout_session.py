"""Responses that are generated while the controller does something else: submitted, polled, and cut off at the end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from rl_core.contracts.sampler import FailureKind
from rl_core.workers import generation
from rl_core.workers.rollout_rows import (
    DEADLINE_KEY,
    RolloutFailure,
    RolloutRow,
    continued,
    pack_rows,
    read_requests,
    unpack_rows,
)

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.contracts.rollout import RolloutEngine, RolloutRequest


class RolloutSession:
    """The requests of one generation phase on the lead of a replica. Everything happens on the engine's event loop."""

    def __init__(self, engine: RolloutEngine) -> None:
        """Nothing is in flight.

        Args:
            engine: answers.
        """
        self._engine = engine
        self._in_flight: dict[asyncio.Task[RolloutRow], tuple[RolloutRow, float]] = {}
        self._is_ending = False

    async def submit(self, prompts: DataProto, version: int) -> DataProto:
        """Send a request for each row, oldest prompt first; a batch without rows."""
        deadline_s = prompts.meta_info[DEADLINE_KEY]
        pairs = zip(unpack_rows(prompts), read_requests(prompts, version), strict=True)
        for before, request in sorted(pairs, key=lambda pair: pair[0].request_id):
            asked = replace(request, response_ids=tuple(before.token_ids.tolist()))
            task = asyncio.get_running_loop().create_task(self._serve(before, asked, deadline_s))
            self._in_flight[task] = (before, time.monotonic())
        return self._pack([])

    async def poll(self, wait_s: float) -> DataProto:
        """Rows that have ended, after ``wait_s`` seconds at most."""
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        return self._pack([self._taken(task) for task in list(self._in_flight) if task.done()])

    async def abort(self) -> DataProto:
        """End what is left and return it. A request that the engine does not give back is lost."""
        self._is_ending = True
        if self._in_flight:
            try:
                async with asyncio.timeout(generation.ABORT_DEADLINE_S):
                    await self._engine.abort([row.request_id for row, _ in self._in_flight.values()])
                    await asyncio.wait(self._in_flight)
            except TimeoutError:
                pass  # what is left then is lost, and says so
        rows = [self._taken(task) if task.done() else self._lost(task) for task in list(self._in_flight)]
        return self._pack(rows)

    async def _serve(self, before: RolloutRow, request: RolloutRequest, deadline_s: float) -> RolloutRow:
        started = time.monotonic()
        outcome = await generation.answer(self._engine, request, deadline_s, already_s=before.seconds)
        is_cut = self._is_ending and not isinstance(outcome, RolloutFailure) and outcome.finish_reason == "abort"
        if not is_cut:
            outcome = generation.without_end(outcome)
        return continued(before, outcome, time.monotonic() - started)

    def _taken(self, task: asyncio.Task[RolloutRow]) -> RolloutRow:
        del self._in_flight[task]
        return task.result()

    def _lost(self, task: asyncio.Task[RolloutRow]) -> RolloutRow:
        before, started = self._in_flight.pop(task)
        task.cancel()
        text = f"the engine did not give the request back within {generation.ABORT_DEADLINE_S:g} s of its abort"
        return continued(before, RolloutFailure(FailureKind.LOST, text), time.monotonic() - started)

    def _pack(self, rows: list[RolloutRow]) -> DataProto:
        return pack_rows(rows, has_log_probs=self._engine.has_log_probs)
