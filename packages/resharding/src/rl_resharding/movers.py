"""The mover through flat buffers: the next bucket is gathered and staged while the receiver loads the one before.

::

    trainer      gather 0, stage 0 | gather 1, stage 1 | gather 2, stage 2 | ...
    receiver                       | load 0            | load 1            | load 2

Order, versions, checks and failure are the generic mover's. Sinks that know ``StagedBucket`` pass its handle on; to all others
it is a bucket as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from rl_core.contracts.rollout import WeightSink
from rl_core.contracts.weights import SyncReport, WeightBucket
from rl_core.resharding.generic import GenericResharding, gather_outcomes

from rl_resharding.inboxes import local_outbox
from rl_resharding.transport import Outbox

_Outcomes = list[BaseException | None]


class StagedResharding(GenericResharding):
    """Stages each bucket where its tensors are: in shared host memory, or in device memory for CUDA IPC."""

    _outbox: Outbox | None = None
    _sinks: Mapping[int, WeightSink]
    _under_way: asyncio.Task[_Outcomes] | None = None

    def move(self, version: int) -> SyncReport:
        """Send all weights as ``version``; see ``Resharding.move``."""
        try:
            return super().move(version)
        finally:
            if self._outbox is not None:
                self._outbox.rest()

    def _put(self, sinks: Mapping[int, WeightSink], bucket: WeightBucket) -> str | None:
        if not sinks or not bucket.slices:
            return None
        if self._outbox is None:
            self._outbox = local_outbox(bucket.slices[0].tensor.device, self.bucket_bytes)
        staged = self._outbox.stage(bucket)
        if error := self._settle():
            return error
        self._sinks = sinks
        self._under_way = self.run(_begin([sink.put(staged) for sink in sinks.values()]))
        return None

    def _settle(self) -> str | None:
        task, self._under_way = self._under_way, None
        return None if task is None else self._errors(self._sinks, self.run(_outcomes(task)))


async def _begin(calls: Sequence[Coroutine[Any, Any, None]]) -> asyncio.Task[_Outcomes]:
    return asyncio.ensure_future(gather_outcomes(calls))


async def _outcomes(task: asyncio.Task[_Outcomes]) -> _Outcomes:
    return await task
