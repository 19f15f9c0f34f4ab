"""A generation engine whose one replica spans several workers of one process.

The lead serves: requests come and go while the engine steps, and all that are in flight advance by one token a step.
Every rank holds its slice of the weights and feeds it itself; the lead reads the slices of its peers through references
that are exchanged once, as a real lead drives its replica's devices.

``log_probs`` belong to the distribution that the token was drawn from (``fakes.draws``): with ``top_p`` 1, ``top_k`` -1 and
no ``min_tokens`` the whole softmax at the request's temperature, otherwise what the filters leave, normalised; 0.0 for
temperature 0. Weights that change while requests are paused are honoured at once: prefixes are computed anew.
"""

from __future__ import annotations

import asyncio
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
from rl_core.errors import ConfigError, RlError, WeightSyncError
from rl_core.single_controller.base.collective import DispatchInfo, WorkerContext

from rl_testing.fakes.draws import draw, log_distribution
from rl_testing.fakes.model_slice import ModelSlice, SliceSink
from rl_testing.fakes.rollout_config import FakeRolloutConfig
from rl_testing.fakes.serving import InFlight, StepLoop
from rl_testing.fakes.sliced_model import PrefixState, SlicedModel
from rl_testing.fakes.stopping import stop_rules
from rl_testing.fakes.tiny_model import TinyConfig

_ALL = frozenset(RolloutState)
_CACHED_PREFIXES = 256


class SlicedRollout(RolloutEngine):
    """Serves the tiny model from ``tensor_model_parallel_size`` workers. See the module for what is promised."""

    def __init__(self, model: Any, config: Any, context: WorkerContext) -> None:
        """Store the arguments and find this worker's place.

        Raises:
            ConfigError: the workers cannot be divided into replicas.
        """
        super().__init__(model, config, context)
        self.has_log_probs = bool(config.calculate_log_probs)
        self._size = int(config.tensor_model_parallel_size)
        if context.world_size % self._size:
            msg = (
                f"rollout.tensor_model_parallel_size is {self._size}, which does not divide the {context.world_size} "
                "workers; choose a divisor"
            )
            raise ConfigError(msg)
        self.replica, self.replica_rank = divmod(context.rank, self._size)
        self.own = FakeRolloutConfig.below(config)
        self.sizes = TinyConfig.from_model(model)
        self.rules = stop_rules(config, self.sizes.vocab_size)
        self.part = ModelSlice(self.sizes, self.replica_rank, self._size)
        self.sink = SliceSink(self.part)
        self.model: SlicedModel | None = None
        self.loop: StepLoop | None = None
        self._prefixes: dict[tuple[int, ...], PrefixState] = {}
        self._prefix_version: int | None = None

    async def initialize(self) -> None:
        """Take memory and, on the lead, get hold of the peers' slices. Collective over the replica."""
        self.part.wake(_ALL)
        first = self.replica * self._size
        group = self.context.collective.subgroup(range(first, first + self._size))
        slices = await asyncio.to_thread(group.all_gather_object, self.part)
        if self.dispatch_info().is_collect:
            self.model = SlicedModel(self.sizes, slices)
            self.loop = StepLoop(self.advance, int(self.config.max_num_seqs))

    def dispatch_info(self) -> DispatchInfo:
        """The first rank of a replica leads it."""
        return DispatchInfo(
            dp_rank=self.replica, dp_size=self.context.world_size // self._size, is_collect=self.replica_rank == 0
        )

    def weight_sinks(self) -> Mapping[int, WeightSink]:
        """This rank's own slice."""
        return {self.replica_rank: self.sink}

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        """See ``RolloutEngine.generate``."""
        loop = self._lead("generate")[1]
        self.rules.check(request)
        self._check_weights(request)
        return await loop.serve(request)

    def advance(self, item: InFlight) -> FinishReason | None:
        """Draw one token for ``item``."""
        model = self._lead("step")[0]
        position, sampling = len(item.tokens), item.request.sampling
        with model.locked():
            version = self._check_weights(item.request)
            item.state = self.prefix(item, version)
            logits = model.logits(item.state[1])
        log_probs = log_distribution(logits, sampling, self.rules.forbidden(sampling, position))
        token = draw(log_probs, item.request.seed, position)
        item.tokens.append(token)
        item.versions.append(version)
        if self.config.calculate_log_probs:
            item.log_probs.append(float(log_probs[token]))
        if self.own.with_token_ranks:
            item.extras.setdefault("token_ranks", []).append(int((log_probs > log_probs[token]).sum()))
        return self.rules.finish(item.request, item.tokens)

    def prefix(self, item: InFlight, version: int) -> tuple[int, PrefixState]:
        """``(version, state)`` of the prompt and all tokens of ``item``, computed with the weights of ``version``."""
        model = self._lead("step")[0]
        if item.state is not None and item.state[0] == version:
            return version, model.extend(
                item.state[1], item.tokens[item.state[1].length - len(item.request.prompt_ids) :]
            )
        return version, model.extend(self.prompt_state(item.request.prompt_ids, version), item.tokens)

    def prompt_state(self, prompt_ids: tuple[int, ...], version: int) -> PrefixState:
        """The state of a prompt, from the prefix cache if it holds it for ``version``."""
        model = self._lead("step")[0]
        if self._prefix_version != version:
            self._prefixes.clear()
            self._prefix_version = version
        state = self._prefixes.get(prompt_ids)
        if state is None:
            state = model.extend(model.empty(), prompt_ids)
            if self.config.enable_prefix_caching:
                if len(self._prefixes) >= _CACHED_PREFIXES:
                    self._prefixes.pop(next(iter(self._prefixes)))
                self._prefixes[prompt_ids] = state
        return state

    def version(self) -> int | None:
        """Of the whole replica on its lead, of the own slice elsewhere."""
        return self.part.version if self.model is None else self.model.version()

    async def sleep(self, level: int) -> frozenset[RolloutState]:
        """See ``RolloutEngine.sleep``; requests in flight are aborted."""
        if level not in (1, 2):
            msg = f"sleep level {level} was asked for; there are 1 (keep the weights) and 2 (discard them)"
            raise ConfigError(msg)
        await self.abort()
        self._prefixes.clear()
        return self.part.sleep(level)

    async def wake(self, tags: Collection[RolloutState]) -> None:
        """See ``RolloutEngine.wake``."""
        self.part.wake(tags)

    def resident(self) -> frozenset[RolloutState]:
        """Of this rank."""
        return self.part.resident()

    async def reset_prefix_cache(self) -> None:
        """See ``RolloutEngine.reset_prefix_cache``."""
        self._prefixes.clear()

    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        """See ``RolloutEngine.abort``."""
        if self.loop is not None:
            self.loop.abort(request_ids)

    async def pause(self) -> None:
        """See ``RolloutEngine.pause``."""
        if self.loop is not None:
            self.loop.pause()

    async def resume(self) -> None:
        """See ``RolloutEngine.resume``."""
        if self.loop is not None:
            self.loop.resume()

    async def health(self) -> Health:
        """Whether this rank's part is awake and complete; on the lead, whether the replica's is."""
        resident = self.resident() if self.model is None else self.model.resident()
        if missing := sorted(_ALL - resident):
            return Health(ok=False, detail=f"asleep: {', '.join(missing)}")
        if self.version() is None:
            return Health(ok=False, detail="no complete weights")
        return Health(ok=True)

    async def close(self) -> None:
        """See ``RolloutEngine.close``."""
        if self.loop is not None:
            await self.loop.close()
        self.part.sleep(level=2)

    def _lead(self, asked: str) -> tuple[SlicedModel, StepLoop]:
        if self.model is None or self.loop is None:
            reason = "is not initialized" if self.replica_rank == 0 else "does not lead its replica"
            msg = (
                f"rank {self.context.rank} was asked to {asked}, but it {reason}; ask rank {self.replica * self._size}"
            )
            raise RlError(msg)
        return self.model, self.loop

    def _check_weights(self, request: RolloutRequest) -> int:
        """The version that may serve ``request`` now."""
        model = self._lead("generate")[0]
        version = model.version()
        if version is None:
            msg = f"request {request.request_id!r}: the weights are missing, partial or discarded; sync them first"
            raise WeightSyncError(msg)
        if request.required_version not in (None, version):
            msg = f"request {request.request_id!r} needs version {request.required_version}; loaded is {version}"
            raise WeightSyncError(msg)
        if missing := sorted(_ALL - model.resident()):
            msg = f"request {request.request_id!r} came while {', '.join(missing)} is asleep; wake it first"
            raise RlError(msg)
        return version
