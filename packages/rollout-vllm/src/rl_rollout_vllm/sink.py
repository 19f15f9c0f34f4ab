"""Where the trainer's weights go in: one hand-over to all of vLLM's workers, each of which takes what is its own.

The lead worker of a replica feeds all its ranks: what sink 0 is told is told to all workers by one call, the other sinks only
count, so that a version is served when every rank has ended its hand-over.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import torch
from rl_core.contracts.rollout import WeightSink
from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest, WeightStream
from rl_core.errors import WeightSyncError
from rl_resharding.inboxes import local_outbox
from rl_resharding.manifests import encode_manifest
from rl_resharding.transport import Outbox, StagedBucket

from rl_rollout_vllm.adapters import NAME, NUMBER, AdapterFolder, AdapterIntake
from rl_rollout_vllm.client import EngineClient
from rl_rollout_vllm.fit_report import FitReport


def make_sinks(
    client: EngineClient,
    *,
    num_ranks: int,
    device: torch.device,
    bucket_bytes: int,
    adapters: AdapterFolder | None = None,
) -> dict[int, WeightSink]:
    """The sinks of a replica, all fed by its lead.

    Args:
        client: of the replica's engine.
        num_ranks: of the replica.
        device: of the lead; buckets of movers that do not stage themselves are staged there.
        bucket_bytes: size of a bucket.
        adapters: where adapters lie that come beside the base weights; None takes whole (merged) weights.
    """
    handover = _Handover(client, num_ranks, local_outbox(device, bucket_bytes), adapters)
    return {rank: _RankSink(handover, rank) for rank in range(num_ranks)}


class _Stream:
    """One stream of the hand-over under way."""

    def __init__(self, version: int, manifest: WeightManifest, taker: FitReport | AdapterIntake) -> None:
        self.version = version
        self.manifest = manifest
        self.taker = taker
        self.ended: set[int] = set()


class _Handover:
    """The hand-over under way, if any."""

    def __init__(self, client: EngineClient, num_ranks: int, outbox: Outbox, adapters: AdapterFolder | None) -> None:
        self._client = client
        self._num_ranks = num_ranks
        self._outbox = outbox
        self._adapters = adapters
        self._stream: _Stream | None = None
        self._base: WeightManifest | None = None
        """Of the base weights that the engine holds, or will hold while ``_base_of`` is the version under way."""
        self._base_of: int | None = None
        self._has_paused = False

    def streams(self) -> tuple[WeightStream, ...]:
        """See ``RolloutEngine.weight_streams``."""
        if self._adapters is None:
            return ("weights",)
        holds_base = self._base is not None and self._client.version is not None
        return ("adapter",) if holds_base else ("base", "adapter")

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        holds_base = self._client.version is not None or self._base_of == version
        await self.abort()
        self._client.set_version(None)
        known = ("weights",) if self._adapters is None else ("base", "adapter")
        if manifest.stream not in known:
            msg = f"version {version} was offered as {manifest.stream!r} stream; this generator takes {' and '.join(known)}"
            raise WeightSyncError(msg)
        if manifest.stream == "adapter":
            try:
                self._begin_adapter(version, manifest, holds_base)
            except WeightSyncError:
                await self._go_on()
                raise
        else:
            await self._begin_weights(version, manifest)

    def _begin_adapter(self, version: int, manifest: WeightManifest, holds_base: bool) -> None:
        if self._adapters is None or self._base is None or not holds_base:
            msg = f"the adapter of version {version} came, but the generator holds no base weights; send 'base' first"
            raise WeightSyncError(msg)
        self._stream = _Stream(version, manifest, AdapterIntake(self._adapters, version, manifest, self._base))

    async def _begin_weights(self, version: int, manifest: WeightManifest) -> None:
        self._base = self._base_of = None
        try:
            text = encode_manifest(manifest)
            report = FitReport(manifest, await self._ask("rl_weights_fit", text))
            if problems := report.problems():
                msg = f"the manifest of version {version} does not fit the generator's model: {'; '.join(problems)}"
                raise WeightSyncError(msg)
            await self._hold()
            self._stream = _Stream(version, manifest, report)
            await self._ask("rl_weights_begin", version, text, json.dumps(report.taken_ties))
        except BaseException:
            await self.abort()
            raise

    async def put(self, bucket: WeightBucket) -> None:
        stream = self._under_way()
        try:
            if isinstance(stream.taker, AdapterIntake):
                stream.taker.put(bucket)
                return
            staged = bucket if isinstance(bucket, StagedBucket) else self._outbox.stage(bucket)
            await self._ask("rl_weights_put", staged.handle)
        except BaseException:
            await self.abort()
            raise

    async def load(self, digest: WeightDigest) -> None:
        """All has been put: check it, here and in vLLM's memory."""
        stream = self._under_way()
        try:
            if isinstance(stream.taker, AdapterIntake):
                await self._load_adapter(stream.taker, digest)
                return
            sums = [answer["sums"] for answer in await self._ask("rl_weights_end", json.dumps(dict(digest)))]
            if damaged := stream.taker.stored_wrongly(sums, digest):
                msg = f"weights of version {stream.version} were stored wrongly by vLLM: {damaged}"
                raise WeightSyncError(msg)
        except BaseException:
            await self.abort()
            raise

    async def _load_adapter(self, intake: AdapterIntake, digest: WeightDigest) -> None:
        await asyncio.to_thread(intake.write, digest)
        await self._hold()
        folder = "" if self._adapters is None else str(self._adapters.path)
        await self._ask("rl_adapter_load", NUMBER, NAME, folder)

    async def end(self, rank: int) -> None:
        """A rank has ended; the last one's end makes the version that of the replica."""
        stream = self._under_way()
        stream.ended.add(rank)
        if len(stream.ended) < self._num_ranks:
            return
        self._stream = None
        self._outbox.rest()
        if stream.manifest.stream == "base":
            self._base, self._base_of = stream.manifest, stream.version  # the adapter makes the version
            return
        await self._client.reset_prefix_cache()
        self._client.set_version(stream.version)
        await self._go_on()

    async def abort(self) -> None:
        """Also after an error: whatever had begun is put back, and nothing is served."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        self._client.set_version(None)
        self._outbox.rest()
        try:
            await self._client.rpc("rl_weights_abort")
        finally:
            await self._go_on()

    async def discard(self) -> None:
        """Also without a stream under way the weights are unusable from here on."""
        self._base_of = None
        self._client.set_version(None)
        await self.abort()
        await self._go_on()

    def _under_way(self) -> _Stream:
        if self._stream is None:
            msg = "weights came outside of a hand-over, or after its end by an error; call begin first"
            raise WeightSyncError(msg)
        return self._stream

    async def _hold(self) -> None:
        """Stop drawing where something is drawn: vLLM takes 20 ms to pause, and nothing can begin without a version."""
        if not self._client.is_paused and not self._client.is_idle:
            await self._client.pause()
            self._has_paused = True

    async def _go_on(self) -> None:
        if self._has_paused:
            self._has_paused = False
            await self._client.resume()

    async def _ask(self, method: str, *args: Any) -> list[dict[str, Any]]:
        answers = [json.loads(text) for text in await self._client.rpc(method, *args)]
        errors = [f"worker {rank}: {answer['error']}" for rank, answer in enumerate(answers) if answer["error"]]
        if errors:
            raise WeightSyncError("; ".join(errors))
        return answers


def wanted_streams(sinks: Mapping[int, WeightSink]) -> tuple[WeightStream, ...]:
    """What the sinks that ``make_sinks`` made must be given next; see ``RolloutEngine.weight_streams``."""
    sink = sinks.get(0)
    return sink.handover.streams() if isinstance(sink, _RankSink) else ()


class _RankSink(WeightSink):
    """One rank's view of the hand-over."""

    def __init__(self, handover: _Handover, rank: int) -> None:
        self.handover = handover
        self._rank = rank

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        """See ``WeightSink.begin``."""
        if self._rank == 0:
            await self.handover.begin(version, manifest)

    async def put(self, bucket: WeightBucket) -> None:
        """See ``WeightSink.put``."""
        if self._rank == 0:
            await self.handover.put(bucket)

    async def end(self, digest: WeightDigest) -> None:
        """See ``WeightSink.end``; a tensor that lies in vLLM's memory as it was sent is also checked there."""
        if self._rank == 0:
            await self.handover.load(digest)
        await self.handover.end(self._rank)

    async def abort(self, reason: str) -> None:
        """See ``WeightSink.abort``."""
        await self.handover.discard()
