"""The generic mover: any training engine to any generation engine, one bucket of whole tensors at a time.

Every rank sees the whole stream and hands it to the sinks beside it, which keep what they need. Faster movers
(``rl-resharding``) replace ``move`` only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from rl_core.contracts.resharding import Resharding
from rl_core.contracts.rollout import WeightSink
from rl_core.contracts.weights import SyncReport, WeightBucket, WeightStream
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import add_to_digest


class GenericResharding(Resharding):
    """Moves whole tensors through every rank; needs nothing of either engine beyond its contract."""

    def move(self, version: int) -> SyncReport:
        """Send all weights as ``version``; see ``Resharding.move``."""
        started = time.perf_counter()
        streams: tuple[WeightStream, ...] = ()
        error: str | None = None
        try:
            streams = self.rollout.weight_streams()
        except Exception as failure:
            error = f"rank {self.context.rank}: {failure}"
        # A generator that has lost its base weights asks for more than its peers, and all ranks send it.
        streams = max(self.context.collective.all_gather_object(streams), key=len) or ("weights",)
        num_tensors = num_bytes = 0
        for stream in streams:
            tensors, size = self._send(version, stream, error)
            num_tensors, num_bytes = num_tensors + tensors, num_bytes + size
        return SyncReport(
            version=version, num_tensors=num_tensors, num_bytes=num_bytes, seconds=time.perf_counter() - started
        )

    def _send(self, version: int, stream: WeightStream, error: str | None) -> tuple[int, int]:
        """Send one stream; how many tensors, and how many bytes this rank handed to its sinks."""
        sinks: Mapping[int, WeightSink] = {}
        # Nobody may enter the engine's collectives while a peer has already refused.
        try:
            manifest, sinks = self.engine.weight_manifest(stream), self.rollout.weight_sinks()
        except Exception as failure:
            error = error or f"rank {self.context.rank}: {failure}"
        self._agree(sinks, error or self._each(sinks, lambda sink: sink.begin(version, manifest)))

        digest: dict[str, int] = {}
        num_tensors = num_bytes = 0
        try:
            for bucket in self.engine.named_weights(self.bucket_bytes, stream):
                add_to_digest(digest, bucket.slices)
                num_tensors += len(bucket.slices)
                num_bytes += sum(part.tensor.numel() * part.tensor.element_size() for part in bucket.slices)
                # A rank whose sink failed still drains the stream: its peers are in the same collectives.
                if error is None:
                    error = self._put(sinks, bucket)
        except Exception as failure:
            # Peers may be inside the engine's own collective, so nothing can be exchanged: this rank's failure is
            # what releases them. Its sinks must not serve half of the weights.
            try:
                self._settle()
            finally:
                self._abort(sinks, str(failure))
            raise
        self._agree(sinks, self._settle() or error)
        self._agree(sinks, self._each(sinks, lambda sink: sink.end(digest)))
        return num_tensors, num_bytes * len(sinks)

    def _put(self, sinks: Mapping[int, WeightSink], bucket: WeightBucket) -> str | None:
        """Hand ``bucket``, which is valid until the next one, to all sinks; or begin to, and report at the next call."""
        return self._each(sinks, partial(_put, bucket))

    def _settle(self) -> str | None:
        """Wait for what ``_put`` has begun; its errors."""
        return None

    def _each(
        self, sinks: Mapping[int, WeightSink], call: Callable[[WeightSink], Coroutine[Any, Any, None]]
    ) -> str | None:
        """Run ``call`` on all sinks of this rank at once, as they may meet inside; errors as text, for the peers."""
        return self._errors(sinks, self.run(gather_outcomes([call(sink) for sink in sinks.values()])))

    def _errors(self, sinks: Mapping[int, WeightSink], outcomes: Sequence[BaseException | None]) -> str | None:
        errors = [
            f"rank {self.context.rank}, sink {rank}: {outcome}"
            for rank, outcome in zip(sinks, outcomes, strict=True)
            if isinstance(outcome, BaseException)
        ]
        return "; ".join(errors) or None

    def _agree(self, sinks: Mapping[int, WeightSink], error: str | None) -> None:
        """Exchange errors; if any rank has one, abort every sink and raise on every rank."""
        errors = [text for text in self.context.collective.all_gather_object(error) if text is not None]
        if not errors:
            return
        reason = "; ".join(errors)
        unaborted = self._abort(sinks, reason)
        msg = f"the weights did not reach the generator: {reason}" + (f" ({unaborted})" if unaborted else "")
        raise WeightSyncError(msg)

    def _abort(self, sinks: Mapping[int, WeightSink], reason: str) -> str | None:
        return self._each(sinks, lambda sink: sink.abort(reason))


async def _put(bucket: WeightBucket, sink: WeightSink) -> None:
    await sink.put(bucket)


async def gather_outcomes(calls: Sequence[Coroutine[Any, Any, None]]) -> list[BaseException | None]:
    """Run ``calls`` at once; for each None, or the error that it raised."""
    return await asyncio.gather(*calls, return_exceptions=True)
