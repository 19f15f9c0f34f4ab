"""The engine: one worker, one replica, one model.

::

    event loop of the worker                      device thread
    generate ─▶ StepLoop ─▶ Scheduler ── plan ──▶ Device.step: move, fit, fill, step, draw
    weight_sinks ─▶ ModelSink ────────────────▶   copies into the model, between two steps
    sleep, wake ──────────────────────────────▶   memory of weights and cache, between two steps

The loop never waits for a pass of the model, so deadlines, aborts and new requests get through at any time; the thread
does one thing after another, so nothing needs a lock.

What repeats: the same requests submitted in the same order to an idle engine with the same weights give the same tokens and
log-probs bit for bit, on the same machine with the same number of threads. In another company a request gets the same
random numbers, and log-probs that differ by rounding only, because a matrix product may add up in another order; its tokens
are the same unless a draw falls within rounding of the border between two tokens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rl_core.contracts.rollout import (
    Health,
    RolloutEngine,
    RolloutOutput,
    RolloutRequest,
    RolloutState,
    WeightSink,
)
from rl_core.errors import ConfigError, RlError, WeightSyncError
from rl_core.single_controller.base.collective import DispatchInfo, WorkerContext
from rl_engine.models import load_config, resolve_folder
from rl_engine.serving.requests import check_request
from rl_engine.serving.stopping import Decode, StopStrings
from rl_engine.serving.text import end_of_sequence_ids, load_decode

from rl_rollout_hf.device import Device
from rl_rollout_hf.device_thread import DeviceThread
from rl_rollout_hf.in_flight import InFlight
from rl_rollout_hf.model import require_servable
from rl_rollout_hf.scheduler import Drawn, Limits, Plan, Scheduler
from rl_rollout_hf.serving import Serviceable, StepLoop
from rl_rollout_hf.settings import choose_dtype, read_settings, require_supported
from rl_rollout_hf.weights import ModelSink

_log = logging.getLogger(__name__)

_ALL = frozenset(RolloutState)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What there is once the engine is initialized."""

    device: Device
    sink: ModelSink
    loop: StepLoop
    eos_token_ids: tuple[int, ...]


class HfRollout(RolloutEngine):
    """Serves one model from one worker. See the module for what is promised."""

    def __init__(self, model: Any, config: Any, context: WorkerContext) -> None:
        """Store the arguments.

        Raises:
            ConfigError: the ``rollout`` section asks for what the engine does not do.
        """
        super().__init__(model, config, context)
        require_supported(config)
        self.has_log_probs = bool(config.calculate_log_probs)
        self._thread = DeviceThread(f"rollout-hf-{context.rank}", torch.device(context.device))
        self._parts: _Parts | None = None
        self._decode: Decode | None = None
        # What may be used: less than what is resident from the first moment of a sleep on.
        self._usable: frozenset[RolloutState] = frozenset()

    async def initialize(self) -> None:
        """Take memory for weights and cache. No weight is read; the trainer brings them.

        Raises:
            ConfigError: the model is not there, or cannot be served, or does not fit.
        """
        device = await self._thread.run(self._build)
        sink = ModelSink(
            device.weights,
            self._thread.run,
            is_awake=lambda: RolloutState.WEIGHTS in self._usable,
            check_model=device.runner.require_faithful_cache,
        )
        settings = device.settings
        limits = Limits(settings.max_num_seqs, settings.max_num_batched_tokens, device.budget_tokens)
        loop = StepLoop(
            Scheduler(limits),
            state=self._state,
            refuse=self._refuse,
            step=self._step,
            with_log_probs=settings.with_log_probs,
        )
        eos_token_ids = end_of_sequence_ids(resolve_folder(self.model_config.path), device.runner.model.config)
        if not eos_token_ids:
            _log.warning("model %s names no end of sequence; responses end by their length", self.model_config.path)
        self._parts = _Parts(device, sink, loop, eos_token_ids)
        self._usable = device.resident()
        if not self.config.skip_tokenizer_init:
            self._decode = await self._thread.run(load_decode, self.model_config)

    def dispatch_info(self) -> DispatchInfo:
        """Every worker is a replica."""
        return DispatchInfo(dp_rank=self.context.rank, dp_size=self.context.world_size, is_collect=True)

    def weight_sinks(self) -> Mapping[int, WeightSink]:
        """The one of this worker."""
        return {0: self._open("take weights").sink}

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        """See ``RolloutEngine.generate``."""
        parts = self._open("generate")
        max_model_len = parts.device.settings.max_model_len
        check_request(request, engine="hf", vocab_size=parts.device.vocab_size, max_model_len=max_model_len)
        self._state()
        if (error := self._stale(request)) is not None:
            raise error
        decode = self._text_of() if request.sampling.stop else None

        def make(future: asyncio.Future[RolloutOutput]) -> InFlight:
            return InFlight(
                request,
                future,
                eos_token_ids=parts.eos_token_ids,
                max_model_len=max_model_len,
                stop_strings=None if decode is None else StopStrings(request.sampling.stop, decode),
            )

        # Nothing is awaited before this: requests queue in the order of the calls.
        return await parts.loop.serve(request.request_id, make)

    def version(self) -> int | None:
        """See ``RolloutEngine.version``."""
        return None if self._parts is None else self._parts.sink.version

    async def sleep(self, level: int) -> frozenset[RolloutState]:
        """See ``RolloutEngine.sleep``; requests in flight are aborted."""
        if level not in (1, 2):
            msg = f"sleep level {level} was asked for; there are 1 (keep the weights) and 2 (discard them)"
            raise ConfigError(msg)
        parts = self._open("sleep")
        self._usable = frozenset()
        parts.loop.abort()
        keeps = level == 1 and parts.sink.version is not None
        if not keeps:
            await parts.sink.abort("the weights are discarded")
        await self._thread.run(parts.device.release, keep_weights=keeps)
        return frozenset({RolloutState.WEIGHTS} if keeps else ())

    async def wake(self, tags: Collection[RolloutState]) -> None:
        """See ``RolloutEngine.wake``."""
        parts = self._open("wake")
        await self._thread.run(parts.device.take, frozenset(tags))
        self._usable = parts.device.resident()
        scheduler = parts.loop.scheduler
        scheduler.limits = replace(scheduler.limits, budget_tokens=parts.device.budget_tokens)

    def resident(self) -> frozenset[RolloutState]:
        """See ``RolloutEngine.resident``."""
        return frozenset() if self._parts is None else self._parts.device.resident()

    async def reset_prefix_cache(self) -> None:
        """Nothing to do: no prefix outlives its sequence, and a hand-over makes every running one read its own anew."""

    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        """See ``RolloutEngine.abort``."""
        self._open("abort").loop.abort(request_ids)

    async def pause(self) -> None:
        """See ``RolloutEngine.pause``."""
        await self._open("pause").loop.pause()

    async def resume(self) -> None:
        """See ``RolloutEngine.resume``; after a hand-over, running sequences are read again with the new weights."""
        self._open("resume").loop.resume()

    async def health(self) -> Health:
        """See ``RolloutEngine.health``."""
        if missing := sorted(_ALL - self.resident()):
            return Health(ok=False, detail=f"asleep: {', '.join(missing)}")
        if self.version() is None:
            return Health(ok=False, detail="no complete weights")
        return Health(ok=True)

    async def close(self) -> None:
        """See ``RolloutEngine.close``."""
        if self._parts is not None:
            parts, self._parts = self._parts, None
            self._usable = frozenset()
            await parts.loop.close()
            await self._thread.run(parts.device.release, keep_weights=False)
        self._thread.close()

    # On the device thread.

    def _build(self) -> Device:
        config = load_config(self.model_config)
        settings = read_settings(self.config, config)
        require_servable(config, settings.max_model_len)
        place = torch.device(self.context.device)
        dtype = choose_dtype(self.config, place)
        trusts = bool(getattr(self.model_config, "trust_remote_code", False))
        device = Device(config, settings, dtype, place, trust_remote_code=trusts)
        device.take(_ALL)
        _log.info(
            "rollout 'hf' on %s: %s, %s, %.2f GiB of weights, room for %d tokens in the cache",
            place,
            config.model_type,
            dtype,
            device.memory.num_bytes / 2**30,
            device.budget_tokens,
        )
        return device

    # On the event loop.

    async def _step(self, plan: Plan) -> Drawn:
        device = self._open("step").device
        # Reading prompts takes longer than the steps before it.
        return await (self._thread.run if plan.contexts else self._thread.run_repeated)(device.step, plan)

    def _open(self, asked: str) -> _Parts:
        if self._parts is None:
            msg = f"rollout 'hf' on rank {self.context.rank} was asked to {asked}, but it is not initialized, or closed"
            raise RlError(msg)
        return self._parts

    def _text_of(self) -> Decode:
        """The tokenizer's decoding, loaded when a stop string is first asked for: ids alone need none."""
        if self._decode is None:
            self._decode = load_decode(self.model_config)
        return self._decode

    def _state(self) -> Serviceable:
        """The weights that can serve now.

        Raises:
            WeightSyncError: there are none.
            RlError: weights or cache are asleep.
        """
        parts = self._open("generate")
        if parts.sink.version is None:
            msg = "the generator's weights are missing, partial or discarded; sync them first"
            raise WeightSyncError(msg)
        if missing := sorted(_ALL - self._usable):
            msg = f"the generator was asked for tokens while its {' and '.join(missing)} are asleep; wake them first"
            raise RlError(msg)
        return Serviceable(parts.sink.version, parts.sink.handovers)

    def _refuse(self, item: InFlight) -> Exception | None:
        return self._stale(item.request)

    def _stale(self, request: RolloutRequest) -> WeightSyncError | None:
        loaded = self.version()
        if request.required_version in (None, loaded):
            return None
        return WeightSyncError(
            f"request {request.request_id!r} needs weights of version {request.required_version}; loaded is {loaded}"
        )
