"""What one worker holds in the resharding suite, and what the suite asks of it; functions that travel to other processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from rl_core.contracts.engine import EngineState, LossFunction, TrainingEngine
from rl_core.contracts.resharding import Resharding
from rl_core.contracts.rollout import RolloutEngine, RolloutOutput, RolloutState, WeightSink
from rl_core.contracts.weights import SyncReport, WeightBucket, WeightDigest, WeightManifest
from rl_core.errors import WeightSyncError
from rl_core.single_controller.base.collective import WorkerContext
from rl_core.workers.async_runner import AsyncRunner
from rl_core.workers.movable import MovableEngine, MovableRollout
from rl_core.workers.phases import Movable, Part, Phase, PhaseTable, State
from rl_dataproto import DataProto, jagged_from_rows

from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.replica import ask

T = TypeVar("T")

LATE_S = 0.1
"""How late a rank is that is late."""

SHARED_STATES: frozenset[State] = frozenset(
    {(Part.ACTOR, state.value) for state in EngineState} | {(Part.ROLLOUT, state.value) for state in RolloutState}
)
"""Everything that leaves when another phase needs the device."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What was on the device at one time, and what had just happened."""

    event: str
    resident: frozenset[State]


@dataclass
class Side:
    """A training engine and a generation engine on one worker, and what was seen of them."""

    engine: TrainingEngine
    rollout: RolloutEngine
    context: WorkerContext
    runner: AsyncRunner
    deadline_s: float
    phases: PhaseTable = field(init=False)
    resharding: Resharding = field(init=False)
    moments: list[Moment] = field(default_factory=list)
    fails_at: str | None = None
    """Call of a sink that raises from now on: ``begin``, ``put``, ``end``; or ``stream`` for the trainer's weights."""
    late_at: str | None = None
    """What takes its time from now on: ``wake`` of the cache, or the ``answer`` of a lead."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine on the worker's event loop."""
        return self.runner.run(coroutine, self.deadline_s)

    def note(self, event: str) -> None:
        """Remember what is on the device now."""
        self.moments.append(Moment(event, self.phases.resident()))

    def close(self) -> None:
        """End both engines."""
        self.run(self.rollout.close())
        self.runner.close()
        self.engine.close()


def connect(
    side: Side, resharding_class: type[Resharding], evictable: Collection[State], sleep_level: int, bucket_bytes: int
) -> Side:
    """Build phase table and resharding over watched engines, and put everything to sleep that may."""
    parts: dict[Part, Movable] = {
        Part.ACTOR: _Watched(MovableEngine(side.engine), side, "actor"),
        Part.ROLLOUT: _Watched(MovableRollout(side.rollout, side.run, sleep_level), side, "rollout"),
    }
    side.phases = PhaseTable(parts, evictable)
    _watch_engines(side)
    side.resharding = resharding_class(
        side.engine,
        side.rollout,
        phases=side.phases,
        run=side.run,
        context=side.context,
        bucket_bytes=bucket_bytes,
    )
    side.phases.evict_all()
    return side


class _Watched:
    def __init__(self, movable: Movable, side: Side, name: str) -> None:
        self._movable, self._side, self._name = movable, side, name

    def resident(self) -> frozenset[str]:
        return self._movable.resident()

    def evict(self, states: Collection[str]) -> None:
        self._movable.evict(states)
        self._side.note(f"evict {self._name}")

    def load(self, states: Collection[str]) -> None:
        for state in sorted(states, reverse=True):  # weights before kv_cache
            if state == RolloutState.KV_CACHE and self._side.late_at == "wake":
                time.sleep(LATE_S)
            self._movable.load({state})
            self._side.note(f"load {self._name}")

    def sizes(self) -> Mapping[str, int]:
        return self._movable.sizes()


class _WatchedSink(WeightSink):
    def __init__(self, sink: WeightSink, side: Side) -> None:
        self._sink, self._side = sink, side

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        self._step("begin")
        await self._sink.begin(version, manifest)

    async def put(self, bucket: WeightBucket) -> None:
        self._step("put")
        await self._sink.put(bucket)

    async def end(self, digest: WeightDigest) -> None:
        self._step("end")
        await self._sink.end(digest)

    async def abort(self, reason: str) -> None:
        self._side.note("abort")
        await self._sink.abort(reason)

    def _step(self, name: str) -> None:
        self._side.note(name)
        if self._side.fails_at == name:
            msg = f"planted failure in {name}"
            raise WeightSyncError(msg)


def _watch_engines(side: Side) -> None:
    """See what passes between the engines; they stay what they are."""
    engine: Any = side.engine
    rollout: Any = side.rollout
    stream, sinks, reset = engine.named_weights, rollout.weight_sinks, rollout.reset_prefix_cache
    watched = {rank: _WatchedSink(sink, side) for rank, sink in sinks().items()}

    def named_weights(*arguments: Any, **options: Any) -> Iterator[WeightBucket]:
        for bucket in stream(*arguments, **options):
            side.note("bucket")
            yield bucket
            if side.fails_at == "stream":
                msg = "planted failure in stream"
                raise RuntimeError(msg)

    async def reset_prefix_cache() -> None:
        side.note("reset_prefix_cache")
        await reset()

    engine.named_weights = named_weights
    rollout.weight_sinks = lambda: watched
    rollout.reset_prefix_cache = reset_prefix_cache


# What a suite asks.


@dataclass(frozen=True, slots=True)
class Sequence_:
    """A prompt and what was generated for it."""

    prompt_ids: tuple[int, ...]
    output: RolloutOutput


@dataclass(frozen=True, slots=True)
class Generated:
    """One generation on one rank.

    Attributes:
        report: of the hand-over.
        version: what the generator said inside the block.
        during: what was on the device inside the block.
        after: what was on the device after it.
        sequences: what was generated; None on ranks that do not lead a replica.
    """

    report: SyncReport
    version: int | None
    during: frozenset[State]
    after: frozenset[State]
    sequences: list[Sequence_] | None


def generate(
    side: Side, version: int, prompts: Sequence[tuple[int, ...]], *, raises: BaseException | None = None
) -> Generated:
    """A generation phase with the weights of ``version``, one response a prompt; instead, raises ``raises`` if given."""

    async def answers() -> list[RolloutOutput]:
        requests = [
            ask(prompt, name=f"{row}", seed=row, max_tokens=6, required_version=version, ignore_eos=True)
            for row, prompt in enumerate(prompts)
        ]
        return list(await asyncio.gather(*(side.rollout.generate(request) for request in requests)))

    with side.resharding.generation(version) as report:
        side.note("generate")
        if raises is not None:
            raise raises
        during, held = side.phases.resident(), side.rollout.version()
        sequences = None
        if side.rollout.dispatch_info().is_collect:
            if side.late_at == "answer":
                time.sleep(LATE_S)
            outputs = side.run(answers())
            sequences = [Sequence_(prompt, output) for prompt, output in zip(prompts, outputs, strict=True)]
    return Generated(report, held, during, side.phases.resident(), sequences)


def score(side: Side, sequences: Sequence[Sequence_]) -> list[list[float]] | None:
    """Log-probs of the responses of this rank's share of ``sequences`` by the training engine; None if it has none."""
    info = side.engine.dispatch_info()
    prompts = [torch.tensor(one.prompt_ids) for one in sequences]
    responses = [torch.tensor(one.output.token_ids) for one in sequences]
    batch = DataProto.from_dict(
        tensors={
            "input_ids": jagged_from_rows([torch.cat(pair) for pair in zip(prompts, responses, strict=True)]),
            "responses": jagged_from_rows(responses),
            "response_mask": jagged_from_rows([torch.ones(len(response), dtype=torch.bool) for response in responses]),
        }
    )
    share = torch.arange(len(batch)).tensor_split(info.dp_size)[info.dp_rank]
    with side.phases.during(Phase.LOG_PROB):
        result = side.engine.forward(batch.select_idxs(share), {"log_probs"})
    if result is None or result.batch is None or not info.is_collect:
        return None
    return [row.tolist() for row in result.batch["log_probs"].unbind()]


def update(side: Side, vocab_size: int) -> float:
    """One optimizer step; the gradient's norm."""
    rows = make_rows(vocab_size)
    info = side.engine.dispatch_info()
    share = torch.arange(len(rows)).tensor_split(info.dp_size)[info.dp_rank]
    with side.phases.during(Phase.UPDATE_ACTOR):
        side.engine.forward_backward(
            as_batch(rows).select_idxs(share), cast("LossFunction", PolicyLoss(num_tokens(rows)))
        )
        return side.engine.optimizer_step().grad_norm


def on_rank(rank: int, call: Callable[[Side], T]) -> Callable[[Side], T | None]:
    """``call`` on ``rank`` alone, when it is sent to all."""
    return lambda side: call(side) if side.context.rank == rank else None


def set_late(where: str | None) -> Callable[[Side], None]:
    """Make a rank late, or in time again."""

    def plant(side: Side) -> None:
        side.late_at = where

    return plant


def set_failure(where: str | None) -> Callable[[Side], None]:
    """Plant a failure, or take it out."""

    def plant(side: Side) -> None:
        side.fails_at = where
        side.moments.clear()

    return plant
