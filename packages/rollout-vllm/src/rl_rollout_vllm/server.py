"""The engine as core sees it.

::

    worker 0 of a replica (the lead)                    vLLM's own processes
    generate, abort, pause, sleep ─▶ LeadReplica ─▶ AsyncLLM ─▶ scheduler ─▶ workers, one a device
    weight_sinks ──────────────────▶ sinks of all ranks ─────────────────▶ WorkerExtension

    workers 1 … n - 1 of the replica: no engine; their devices belong to the lead's

Every worker follows the life cycle, so that all of them say the same about what is on the device.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from rl_core.contracts.rollout import Health, RolloutEngine, RolloutOutput, RolloutRequest, RolloutState, WeightSink
from rl_core.contracts.weights import WeightStream
from rl_core.errors import ConfigError, RlError, WeightSyncError
from rl_core.metrics import Metric
from rl_core.single_controller.base.collective import DispatchInfo, WorkerContext
from rl_engine.models import load_config, resolve_folder
from rl_engine.serving.requests import check_request
from rl_engine.serving.stopping import Decode, StopStrings
from rl_engine.serving.text import end_of_sequence_ids, load_decode

from rl_rollout_vllm.adapters import AdapterFolder
from rl_rollout_vllm.config import VllmRolloutConfig
from rl_rollout_vllm.engine import Engine, start_engine
from rl_rollout_vllm.environment import Variables, engine_variables, gather_devices
from rl_rollout_vllm.flights import stale_error
from rl_rollout_vllm.in_flight import InFlight
from rl_rollout_vllm.replica import LeadReplica
from rl_rollout_vllm.settings import engine_arguments, find_replica, longest_sequence, require_supported, served_adapter
from rl_rollout_vllm.sink import make_sinks, wanted_streams

_log = logging.getLogger(__name__)

_ALL = frozenset(RolloutState)


class VllmRollout(RolloutEngine):
    """One worker of a replica that vLLM serves."""

    def __init__(self, model: Any, config: Any, context: WorkerContext) -> None:
        """Store the arguments.

        Raises:
            ConfigError: the ``rollout`` section asks for what the engine does not do.
        """
        super().__init__(model, config, context)
        require_supported(config)
        self.has_log_probs = bool(config.calculate_log_probs)
        self._replica = find_replica(config, context)
        self._own = VllmRolloutConfig.below(config)
        self._is_open = False
        self._lead: LeadReplica | None = None
        self._sinks: Mapping[int, WeightSink] = {}
        self._adapters: AdapterFolder | None = None
        self._resident: frozenset[RolloutState] = frozenset()
        self._eos_token_ids: tuple[int, ...] = ()
        self._max_model_len = 0
        self._decode: Decode | None = None

    async def initialize(self) -> None:
        """Start the engine, on the lead. No weight is read; the trainer brings them.

        Raises:
            ConfigError: the model is not there, or vLLM does not accept the keys.
            RlError: the engine did not start.
        """
        # It waits for the other workers, whose loop this may be.
        devices = await asyncio.to_thread(gather_devices, self.context, self._replica)
        if self._replica.place == 0:
            await self._initialize_lead(devices)
        self._is_open, self._resident = True, _ALL

    async def _initialize_lead(self, devices: Sequence[str]) -> None:
        device = torch.device(self.context.device)
        folder = resolve_folder(self.model_config.path)
        config = load_config(self.model_config, folder, for_training=False)
        self._max_model_len = longest_sequence(
            self.config, getattr(config.get_text_config(), "max_position_embeddings", None)
        )
        self._eos_token_ids = end_of_sequence_ids(folder, config)
        if not self._eos_token_ids:
            _log.warning("model %s names no end of sequence; responses end by their length", self.model_config.path)
        arguments = engine_arguments(
            self.model_config,
            self.config,
            folder=str(folder),
            max_model_len=self._max_model_len,
            device_type=device.type,
        )
        variables = engine_variables(
            self.context,
            self._replica,
            devices,
            deterministic=self.config.full_determinism,
            start_deadline_s=self._own.start_deadline_s,
        )
        lead = LeadReplica(
            lambda: self._start(arguments, variables),
            has_device_memory=bool(arguments["enable_sleep_mode"]),
            min_freed_share=self._own.min_freed_share,
        )
        await lead.open()
        self._lead = lead
        adapter = served_adapter(self.model_config)
        self._adapters = None if adapter is None else AdapterFolder(adapter)
        self._sinks = make_sinks(
            lead,
            num_ranks=self._replica.span,
            device=device,
            bucket_bytes=self.config.checkpoint_engine.update_weights_bucket_megabytes * 2**20,
            adapters=self._adapters,
        )
        _log.info(
            "rollout 'vllm' on %s: started in %.1f s, room for %d tokens in the cache, %d sequences of %d",
            ", ".join(devices),
            lead.facts.start_s,
            lead.facts.cache_tokens,
            lead.facts.cache_tokens // self._max_model_len,
            self._max_model_len,
        )

    async def _start(self, arguments: Mapping[str, Any], variables: Variables) -> Engine:
        return await start_engine(arguments, variables)

    def dispatch_info(self) -> DispatchInfo:
        """Neighbouring workers share a replica; the first of them leads."""
        replica = self._replica
        return DispatchInfo(dp_rank=replica.index, dp_size=replica.count, is_collect=replica.place == 0)

    def weight_sinks(self) -> Mapping[int, WeightSink]:
        """The lead feeds all ranks of its replica."""
        self._require_open("take weights")
        return self._sinks

    def weight_streams(self) -> tuple[WeightStream, ...]:
        """Merged weights; or adapters, after the base model where it is not there."""
        return wanted_streams(self._sinks)

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        """See ``RolloutEngine.generate``."""
        lead = self._open("generate")
        check_request(
            request,
            engine="vllm",
            vocab_size=lead.facts.vocab_size,
            max_model_len=self._max_model_len,
            takes_images=lead.facts.takes_images,
        )
        version = self._require_servable(lead)
        if request.required_version not in (None, version):
            raise stale_error(request.request_id, request.required_version, version)
        decode = self._text_of() if request.sampling.stop else None
        item = InFlight(
            request,
            lead.flights.next_name(request.request_id),
            eos_token_ids=self._eos_token_ids,
            max_model_len=self._max_model_len,
            version=version,
            stop_strings=None if decode is None else StopStrings(request.sampling.stop, decode),
        )
        with lead.flights.holding(item):
            lead.flights.warn_if_crowded(cache_tokens=lead.facts.cache_tokens, max_num_seqs=self.config.max_num_seqs)
            return await self._draw(lead, item)

    async def _draw(self, lead: LeadReplica, item: InFlight) -> RolloutOutput:
        params = item.params(with_log_probs=self.has_log_probs, draw_mode=lead.facts.draw_mode)
        lora = None if self._adapters is None else self._adapters.request()
        outputs = lead.engine.generate(item.prompt(), params, item.name, lora)
        reason = None
        try:
            async for output in outputs:
                reason = item.add(output)
                if reason is not None:
                    break
        finally:
            await outputs.aclose()
        if item.error is not None:
            raise item.error
        if reason is None:
            msg = f"vLLM left request {item.request.request_id!r} without an end"
            raise RlError(msg)
        is_raw = self.config.logprobs_mode == "raw_logprobs"
        return item.finish(reason, with_log_probs=self.has_log_probs, raw=is_raw)

    def version(self) -> int | None:
        """See ``RolloutEngine.version``; only the lead of a replica holds one."""
        return None if self._lead is None else self._lead.version

    async def sleep(self, level: int) -> frozenset[RolloutState]:
        """See ``RolloutEngine.sleep``; requests in flight are aborted."""
        if level not in (1, 2):
            msg = f"sleep level {level} was asked for; there are 1 (keep the weights) and 2 (discard them)"
            raise ConfigError(msg)
        self._require_open("sleep")
        if not self.config.free_cache_engine and self.context.device.startswith("cuda"):
            msg = "rollout 'vllm' was asked to sleep, but rollout.free_cache_engine=false gave it memory that stays"
            raise RlError(msg)
        resident, self._resident = self._resident, frozenset()
        lead = self._lead
        if lead is None:
            return frozenset({RolloutState.WEIGHTS} if level == 1 else ())
        keeps = level == 1 and lead.version is not None
        await lead.sleep(1 if keeps else 2, resident)
        return frozenset({RolloutState.WEIGHTS} if keeps else ())

    async def wake(self, tags: Collection[RolloutState]) -> None:
        """See ``RolloutEngine.wake``. An engine that has died is replaced by a new one, which has no weights."""
        self._require_open("wake")
        missing = [tag for tag in RolloutState if tag in tags and tag not in self._resident]
        if self._lead is not None and (missing or self._lead.failure is not None):
            await self._lead.wake(missing)
        self._resident |= frozenset(missing)

    def resident(self) -> frozenset[RolloutState]:
        """See ``RolloutEngine.resident``."""
        return self._resident

    async def reset_prefix_cache(self) -> None:
        """See ``RolloutEngine.reset_prefix_cache``; requests in flight are read again with the weights of then."""
        self._require_open("reset its prefix cache")
        if self._lead is not None and RolloutState.KV_CACHE in self._resident:
            await self._lead.reset_prefix_cache()

    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        """See ``RolloutEngine.abort``."""
        self._require_open("abort")
        if self._lead is not None:
            await self._lead.abort(request_ids)

    async def pause(self) -> None:
        """See ``RolloutEngine.pause``."""
        self._require_open("pause")
        if self._lead is not None:
            await self._lead.pause()

    async def resume(self) -> None:
        """See ``RolloutEngine.resume``."""
        self._require_open("resume")
        if self._lead is not None:
            await self._lead.resume()

    async def health(self) -> Health:
        """See ``RolloutEngine.health``."""
        if missing := sorted(_ALL - self._resident):
            return Health(ok=False, detail=f"asleep: {', '.join(missing)}")
        if self._lead is None:
            return Health(ok=self._is_open, detail="" if self._is_open else "not initialized, or closed")
        if (failure := self._lead.failure) is not None:
            return Health(ok=False, detail=str(self._lead.engine.death(failure)))
        if self._lead.version is None:
            return Health(ok=False, detail="no complete weights")
        return Health(ok=True)

    async def metrics(self) -> Mapping[str, Metric]:
        """See ``RolloutEngine.metrics``."""
        lead = self._lead
        if lead is None:
            return {}
        tokens = lead.facts.cache_tokens
        found = {
            "rollout/kv_cache_tokens": Metric(tokens, "min"),
            "rollout/max_concurrency": Metric(tokens / self._max_model_len, "min"),
            "rollout/engine_restarts": Metric(lead.restarts, "sum"),
        }
        try:
            if lead.failure is None:
                found["rollout/preemptions"] = Metric(await lead.preemptions(), "sum")
        except RlError as error:  # the responses are there; whoever needs the engine next is told
            _log.warning("rollout 'vllm' cannot say how often it preempted: %s", error)
        if lead.freed_bytes:
            found["rollout/freed_gib"] = Metric(lead.freed_bytes / 2**30, "sum")
        return found

    async def close(self) -> None:
        """See ``RolloutEngine.close``."""
        self._is_open, self._resident = False, frozenset()
        lead, self._lead, self._sinks = self._lead, None, {}
        adapters, self._adapters = self._adapters, None
        if lead is not None:
            await lead.close()
        if adapters is not None:
            adapters.close()

    def _require_open(self, asked: str) -> None:
        if not self._is_open:
            msg = (
                f"rollout 'vllm' on rank {self.context.rank} was asked to {asked}, but it is not initialized, or closed"
            )
            raise RlError(msg)

    def _open(self, asked: str) -> LeadReplica:
        self._require_open(asked)
        if self._lead is None:
            msg = (
                f"rollout 'vllm' on rank {self.context.rank} was asked to {asked}, but the first worker of its replica (rank "
                f"{self._replica.index * self._replica.span}) answers"
            )
            raise RlError(msg)
        return self._lead

    def _require_servable(self, lead: LeadReplica) -> int:
        """The version that answers.

        Raises:
            WeightSyncError: there are no whole weights.
            RlError: weights or cache are asleep, or the engine has died.
        """
        if lead.failure is not None:
            raise lead.engine.death(lead.failure)
        if lead.version is None:
            msg = "the generator's weights are missing, partial or discarded; sync them first"
            raise WeightSyncError(msg)
        if missing := sorted(_ALL - self._resident):
            msg = f"the generator was asked for tokens while its {' and '.join(missing)} are asleep; wake them first"
            raise RlError(msg)
        return lead.version

    def _text_of(self) -> Decode:
        """The tokenizer's decoding, loaded when a stop string is first asked for: ids alone need none."""
        if self._decode is None:
            self._decode = load_decode(self.model_config)
        return self._decode
