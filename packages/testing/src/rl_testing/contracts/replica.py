"""One replica of a generation engine under test: all its ranks, and what a suite does to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from rl_core.contracts.rollout import RolloutEngine, RolloutOutput, RolloutRequest, SamplingParams, WeightSink
from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest
from rl_core.single_controller.base.collective import WorkerContext
from rl_core.workers.async_runner import AsyncRunner

from rl_testing.contracts.policy import PolicyModel, as_buckets
from rl_testing.contracts.ranks import Ranks, run_on_all

T = TypeVar("T")


class ServingRank:
    """What one worker of a replica holds: the engine, and the event loop that it lives on."""

    def __init__(self, engine: RolloutEngine, name: str, deadline_s: float) -> None:
        """Initialize ``engine`` on a loop called ``name``; no coroutine may take longer than ``deadline_s``."""
        self.engine = engine
        self.tasks: dict[str, asyncio.Task[RolloutOutput]] = {}
        self._runner = AsyncRunner(name)
        self._deadline_s = deadline_s
        self.run(engine.initialize())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine on the engine's loop."""
        return self._runner.run(coroutine, self._deadline_s)

    def each_sink(self, call: Callable[[WeightSink], Coroutine[Any, Any, None]]) -> None:
        """``call`` for every sink that this worker feeds."""
        for sink in self.engine.weight_sinks().values():
            self.run(call(sink))

    def close(self) -> None:
        """End engine and loop."""
        self.run(self.engine.close())
        self._runner.close()


def build_serving_rank(make: Callable[[WorkerContext], RolloutEngine], deadline_s: float) -> Any:
    """The ``build`` of ``ThreadRanks`` for engines that ``make`` constructs."""
    return lambda context: ServingRank(make(context), f"rank-{context.rank}-loop", deadline_s)


class Replica:
    """All ranks of a replica, and the model that they serve."""

    def __init__(self, ranks: Ranks[ServingRank], policy: PolicyModel) -> None:
        """Find the lead among ``ranks``."""
        self.ranks = ranks
        self.policy = policy
        leads = [rank for rank, info in enumerate(self.dispatch_infos()) if info.is_collect]
        self.lead = leads[0] if leads else 0

    def dispatch_infos(self) -> list[Any]:
        """``dispatch_info()`` of every rank."""
        return run_on_all(self.ranks, lambda held: held.engine.dispatch_info())

    # Weights.

    def sync(self, version: int, manifest: WeightManifest | None = None, pieces: int = 1) -> None:
        """A whole hand-over of the policy's weights of ``version``; raises the first error of any rank."""
        manifest = self.policy.manifest() if manifest is None else manifest
        buckets, digest = as_buckets(manifest, self.policy.weights(version), pieces=pieces)
        self.begin(version, manifest)
        self.put(buckets)
        self.end(digest)

    def begin(self, version: int, manifest: WeightManifest | None = None) -> None:
        """``begin`` on every sink."""
        manifest = self.policy.manifest() if manifest is None else manifest
        run_on_all(self.ranks, lambda held: held.each_sink(lambda sink: sink.begin(version, manifest)))

    def put(self, buckets: Sequence[WeightBucket]) -> None:
        """``put`` on every sink, bucket by bucket; a bucket's memory is used for something else afterwards."""
        for bucket in buckets:
            run_on_all(self.ranks, partial(_put, bucket=bucket))
            for part in bucket.slices:
                part.tensor.fill_(torch.nan)

    def end(self, digest: WeightDigest) -> None:
        """``end`` on every sink."""
        run_on_all(self.ranks, lambda held: held.each_sink(lambda sink: sink.end(digest)))

    def sinks(self) -> list[tuple[int, int]]:
        """``(worker, rank)`` of every sink: the worker that feeds it, and the rank that it belongs to."""
        fed = run_on_all(self.ranks, lambda held: sorted(held.engine.weight_sinks()))
        return [(worker, rank) for worker, ranks in enumerate(fed) for rank in ranks]

    def end_one(self, worker: int, rank: int, digest: WeightDigest) -> None:
        """``end`` on the sink of ``rank`` alone, which ``worker`` feeds."""
        self.ranks.run(worker, lambda held: held.run(held.engine.weight_sinks()[rank].end(digest)))

    def abort_sync(self, reason: str) -> None:
        """``abort`` on every sink."""
        run_on_all(self.ranks, lambda held: held.each_sink(lambda sink: sink.abort(reason)))

    def version(self) -> int | None:
        """What the lead says it serves."""
        return self.ranks.run(self.lead, lambda held: held.engine.version())

    # Requests.

    def generate(self, *requests: RolloutRequest) -> list[RolloutOutput | Exception]:
        """Outputs or errors of ``requests``, all in flight together, submitted in this order."""

        async def together(engine: RolloutEngine) -> list[Any]:
            return await asyncio.gather(*(engine.generate(request) for request in requests), return_exceptions=True)

        return self.on_lead(together)

    def output(self, request: RolloutRequest) -> RolloutOutput:
        """The output of one request; raises its error."""
        outcome = self.generate(request)[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def outputs(self, *requests: RolloutRequest) -> list[RolloutOutput]:
        """Outputs of ``requests``, all in flight together; raises the first error."""
        results: list[RolloutOutput] = []
        for outcome in self.generate(*requests):
            if isinstance(outcome, Exception):
                raise outcome
            results.append(outcome)
        return results

    def start(self, request: RolloutRequest) -> None:
        """Submit ``request`` and do not wait."""

        async def start(held: ServingRank) -> None:
            task = asyncio.get_running_loop().create_task(held.engine.generate(request))
            held.tasks[request.request_id] = task
            await asyncio.sleep(0)

        self.ranks.run(self.lead, lambda held: held.run(start(held)))

    def wait(self, request_id: str, timeout_s: float | None = None) -> RolloutOutput:
        """The output of a request that was started.

        Raises:
            TimeoutError: it did not come within ``timeout_s``; the request goes on.
        """

        async def wait(held: ServingRank) -> RolloutOutput:
            return await asyncio.wait_for(asyncio.shield(held.tasks[request_id]), timeout_s)

        return self.ranks.run(self.lead, lambda held: held.run(wait(held)))

    def on_lead(self, call: Callable[[RolloutEngine], Coroutine[Any, Any, T]]) -> T:
        """Await ``call`` on the lead."""
        return self.ranks.run(self.lead, lambda held: held.run(call(held.engine)))

    def on_all(self, call: Callable[[RolloutEngine], Coroutine[Any, Any, T]]) -> list[T]:
        """Await ``call`` on every rank at the same time."""
        return run_on_all(self.ranks, lambda held: held.run(call(held.engine)))


def _put(held: ServingRank, bucket: WeightBucket) -> None:
    held.each_sink(lambda sink: sink.put(bucket))


def ask(
    prompt_ids: Sequence[int],
    *,
    name: str = "request",
    seed: int = 0,
    required_version: int | None = None,
    **sampling: Any,
) -> RolloutRequest:
    """A request; ``sampling`` are fields of ``SamplingParams``."""
    return RolloutRequest(
        request_id=name,
        prompt_ids=tuple(prompt_ids),
        sampling=SamplingParams(**sampling),
        seed=seed,
        required_version=required_version,
    )


def essence(output: RolloutOutput) -> tuple[Any, ...]:
    """What must be the same when a request is answered again; log-probs may differ in the last digits."""
    return output.token_ids, output.finish_reason, output.versions
