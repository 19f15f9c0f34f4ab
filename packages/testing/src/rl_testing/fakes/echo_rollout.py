"""A generation engine without a model: the response is the prompt.

Good for tests of everything around a model. It answers as an engine does (asynchronous, stepping, stop rules, versions,
life cycle) and checks weights as strictly as one, but only remembers their version and digest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rl_core.contracts.rollout import (
    FinishReason,
    Health,
    RolloutEngine,
    RolloutOutput,
    RolloutRequest,
    RolloutState,
    WeightSink,
)
from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest
from rl_core.errors import ConfigError, RlError, WeightSyncError
from rl_core.resharding.intake import Intake
from rl_core.single_controller.base.collective import DispatchInfo, WorkerContext

from rl_testing.fakes.manifest import ExpectedTensor, manifest_problems
from rl_testing.fakes.serving import InFlight, StepLoop
from rl_testing.fakes.stopping import StopRules, stop_rules
from rl_testing.fakes.tokenizer import TinyTokenizer

_ALL = frozenset(RolloutState)


class EchoRollout(RolloutEngine):
    """Repeats the prompt and ends it with an end-of-sequence token.

    The prompt is cut to ``max_tokens``, or repeated as far as ``min_tokens`` or ``ignore_eos`` demand. Seeds and temperature
    change nothing; there are no log-probs. Every worker is a replica.
    """

    has_log_probs = False

    def __init__(self, model: Any, config: Any, context: WorkerContext) -> None:
        """Store the arguments.

        Raises:
            ConfigError: a replica of several workers was asked for.
        """
        super().__init__(model, config, context)
        if config.tensor_model_parallel_size != 1:
            msg = (
                f"rollout.tensor_model_parallel_size is {config.tensor_model_parallel_size}; the echo rollout has no "
                "model to slice, set it to 1"
            )
            raise ConfigError(msg)
        self.rules: StopRules = stop_rules(config, TinyTokenizer().vocab_size)
        self.sink = EchoSink(self)
        self.loop: StepLoop | None = None
        self.loaded: int | None = None
        self.digest: WeightDigest = {}
        self.awake: set[RolloutState] = set()

    async def initialize(self) -> None:
        """Pretend to take memory."""
        self.awake = set(_ALL)
        self.loop = StepLoop(self.advance, int(self.config.max_num_seqs))

    def dispatch_info(self) -> DispatchInfo:
        """Every worker leads its own replica."""
        return DispatchInfo(dp_rank=self.context.rank, dp_size=self.context.world_size, is_collect=True)

    def weight_sinks(self) -> Mapping[int, WeightSink]:
        """One rank, one sink."""
        return {0: self.sink}

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        """See ``RolloutEngine.generate``."""
        self.rules.check(request)
        self._check_weights(request)
        return await self._loop().serve(request)

    def advance(self, item: InFlight) -> FinishReason | None:
        """Echo one more token."""
        item.versions.append(self._check_weights(item.request))
        prompt, sampling, position = item.request.prompt_ids, item.request.sampling, len(item.tokens)
        is_over = position >= len(prompt) and position + 1 >= sampling.min_tokens and not sampling.ignore_eos
        item.tokens.append(self.rules.eos_token_ids[0] if is_over else prompt[position % len(prompt)])
        return self.rules.finish(item.request, item.tokens)

    def version(self) -> int | None:
        """Of the weights that came last and came whole."""
        return self.loaded

    async def sleep(self, level: int) -> frozenset[RolloutState]:
        """See ``RolloutEngine.sleep``; requests in flight are aborted."""
        if level not in (1, 2):
            msg = f"sleep level {level} was asked for; there are 1 (keep the weights) and 2 (discard them)"
            raise ConfigError(msg)
        await self.abort()
        self.awake.clear()
        if level == 2:
            self.loaded = None
        return frozenset({RolloutState.WEIGHTS} if self.loaded is not None else ())

    async def wake(self, tags: Collection[RolloutState]) -> None:
        """See ``RolloutEngine.wake``."""
        self.awake.update(tags)

    def resident(self) -> frozenset[RolloutState]:
        """What is awake."""
        return frozenset(self.awake)

    async def reset_prefix_cache(self) -> None:
        """There is none."""

    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        """See ``RolloutEngine.abort``."""
        if self.loop is not None:
            self.loop.abort(request_ids)

    async def pause(self) -> None:
        """See ``RolloutEngine.pause``."""
        self._loop().pause()

    async def resume(self) -> None:
        """See ``RolloutEngine.resume``."""
        self._loop().resume()

    async def health(self) -> Health:
        """See ``RolloutEngine.health``."""
        if missing := sorted(_ALL - self.awake):
            return Health(ok=False, detail=f"asleep: {', '.join(missing)}")
        return Health(ok=self.loaded is not None, detail="" if self.loaded is not None else "no complete weights")

    async def close(self) -> None:
        """See ``RolloutEngine.close``."""
        if self.loop is not None:
            await self.loop.close()
        self.awake.clear()

    def _loop(self) -> StepLoop:
        if self.loop is None:
            msg = f"the echo rollout of rank {self.context.rank} is not initialized; call initialize first"
            raise RlError(msg)
        return self.loop

    def _check_weights(self, request: RolloutRequest) -> int:
        version = self.loaded
        if version is None:
            msg = f"request {request.request_id!r}: the weights are missing, partial or discarded; sync them first"
            raise WeightSyncError(msg)
        if request.required_version not in (None, version):
            msg = f"request {request.request_id!r} needs version {request.required_version}; loaded is {version}"
            raise WeightSyncError(msg)
        if missing := sorted(_ALL - self.awake):
            msg = f"request {request.request_id!r} came while {', '.join(missing)} is asleep; wake it first"
            raise RlError(msg)
        return version


class EchoSink(WeightSink):
    """Takes the first manifest as the model's, and holds every later one to it."""

    def __init__(self, rollout: EchoRollout) -> None:
        """Tell ``rollout`` what came."""
        self.rollout = rollout
        self.expected: dict[str, ExpectedTensor] | None = None
        self.intake: Intake | None = None

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        """See ``WeightSink.begin``."""
        await self.abort("a new hand-over begins")
        if RolloutState.WEIGHTS not in self.rollout.awake:
            msg = f"version {version} was offered, but the weights are asleep; wake them first"
            raise WeightSyncError(msg)
        if self.expected is None:
            self.expected = {
                entry.name: ExpectedTensor(tuple(entry.shape), entry.dtype, entry.tied_to) for entry in manifest.entries
            }
        if problems := manifest_problems(manifest, self.expected):
            msg = f"the manifest of version {version} does not fit the model: {'; '.join(problems)}"
            raise WeightSyncError(msg)
        self.intake = Intake(version, manifest)

    async def put(self, bucket: WeightBucket) -> None:
        """See ``WeightSink.put``; nothing is kept but the digest."""
        self._take().accept(bucket)

    async def end(self, digest: WeightDigest) -> None:
        """See ``WeightSink.end``."""
        intake = self._take()
        self.intake = None
        intake.check_complete(digest)
        self.rollout.loaded, self.rollout.digest = intake.version, dict(digest)

    async def abort(self, reason: str) -> None:
        """See ``WeightSink.abort``."""
        self.rollout.loaded = None
        self.intake = None

    def _take(self) -> Intake:
        if self.intake is None:
            msg = "weights came outside of a hand-over; call begin first"
            raise WeightSyncError(msg)
        return self.intake
