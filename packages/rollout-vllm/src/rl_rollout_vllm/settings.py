"""From the ``model`` and ``rollout`` sections to vLLM's arguments. What cannot work is refused here, before it starts.

Everything below ``rollout.engine_kwargs.vllm`` goes to vLLM as it is, and vLLM judges it.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rl_core.errors import ConfigError
from rl_core.single_controller.base.collective import WorkerContext
from rl_engine.lora.settings import LoraSettings, lora_settings

from rl_rollout_vllm.config import DEFAULT_CPU_CACHE_GIB, VllmRolloutConfig

_log = logging.getLogger(__name__)

EXTENSION: Final = "rl_rollout_vllm.extension.WorkerExtension"
_SECTION: Final = "actor_rollout_ref.rollout"
_ADAPTER_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Sizes that vLLM makes room for."""
_LOG_PROBS: Final = ("processed_logprobs", "raw_logprobs")
_GIB: Final = 1 << 30
_SAME_NAME: Final = (
    *("cudagraph_capture_sizes", "disable_log_stats", "enable_chunked_prefill", "enable_prefix_caching"),
    *("enforce_eager", "gpu_memory_utilization", "load_format", "logprobs_mode", "max_model_len"),
    *("max_num_batched_tokens", "max_num_seqs", "quantization", "scheduling_policy", "skip_tokenizer_init"),
)
"""Arguments of vLLM that are keys of the ``rollout`` section too."""
_OWN: Final[Mapping[str, str]] = {
    **{name: f"set rollout.{name}" for name in _SAME_NAME},
    "dtype": "set rollout.dtype, or rollout.vllm.dtype",
    "enable_expert_parallel": "set rollout.expert_parallel_size",
    "generation_config": "requests say everything themselves",
    "kv_cache_memory_bytes": "set rollout.vllm.cache_gib",
    "seed": "each request has its own",
    "tokenizer": "set model.tokenizer_path",
    "trust_remote_code": "set model.trust_remote_code",
    "distributed_executor_backend": "rollout 'vllm' decides it",
    "enable_lora": "model.lora_rank and model.lora.merge decide it",
    "max_loras": "one adapter is served",
    "max_lora_rank": "model.lora_rank decides it",
    "enable_sleep_mode": "rollout.free_cache_engine decides it",
    "model": "set model.path",
    "pipeline_parallel_size": "set rollout.pipeline_model_parallel_size",
    "data_parallel_size": "set rollout.data_parallel_size",
    "tensor_parallel_size": "set rollout.tensor_model_parallel_size",
    "worker_extension_cls": "weights arrive through it",
}
"""Arguments of vLLM that ``engine_kwargs`` may not set -> what to do."""


@dataclass(frozen=True, slots=True)
class Replica:
    """Where a worker stands.

    Attributes:
        span: workers of one replica, and devices of one engine.
        index: number of this worker's replica.
        count: replicas.
        place: of this worker in its replica; 0 leads.
    """

    span: int
    index: int
    count: int
    place: int


def require_supported(rollout: Any) -> None:
    """Refuse what the engine does not do.

    Raises:
        ConfigError: data-parallel workers inside a replica, experts over some of its workers, or unknown log-probs.
    """
    if rollout.data_parallel_size != 1:
        msg = (
            f"{_SECTION}.data_parallel_size is {rollout.data_parallel_size}, but of vLLM's data-parallel engines only the "
            "first one answers whether its weights arrived. Set it to 1: more workers make more replicas by themselves"
        )
        raise ConfigError(msg)
    span = rollout.tensor_model_parallel_size * rollout.pipeline_model_parallel_size
    if rollout.expert_parallel_size not in (1, span):
        msg = (
            f"{_SECTION}.expert_parallel_size is {rollout.expert_parallel_size}; vLLM spreads experts over all workers of a "
            f"replica or over none: 1 or {span} (tensor times pipeline parallel size)"
        )
        raise ConfigError(msg)
    if rollout.logprobs_mode not in _LOG_PROBS:
        msg = f"{_SECTION}.logprobs_mode is {rollout.logprobs_mode!r}; choose one of {', '.join(_LOG_PROBS)}"
        raise ConfigError(msg)


def find_replica(rollout: Any, context: WorkerContext) -> Replica:
    """Which replica the worker belongs to: neighbouring ranks share one.

    Raises:
        ConfigError: the workers do not divide into replicas.
    """
    span = rollout.tensor_model_parallel_size * rollout.pipeline_model_parallel_size
    if context.world_size % span:
        msg = (
            f"a replica of rollout 'vllm' spans {span} workers (tensor {rollout.tensor_model_parallel_size} x pipeline "
            f"{rollout.pipeline_model_parallel_size} parallel), but there are {context.world_size} workers; change "
            f"{_SECTION}.tensor_model_parallel_size or the number of workers"
        )
        raise ConfigError(msg)
    index, place = divmod(context.rank, span)
    return Replica(span=span, index=index, count=context.world_size // span, place=place)


def longest_sequence(rollout: Any, positions: int | None) -> int:
    """Most tokens of prompt and response together.

    Raises:
        ConfigError: the keys ask for more than the model's positions, or for nothing and the model names none.
    """
    from_data = (rollout.prompt_length or 0) + (rollout.response_length or 0)
    asked = rollout.max_model_len or from_data or positions
    if asked is None or (positions is not None and asked > positions):
        source = (
            f"rollout.max_model_len ({rollout.max_model_len})"
            if rollout.max_model_len
            else f"prompt ({rollout.prompt_length}) and response ({rollout.response_length})"
        )
        msg = (
            f"{source} ask for sequences of {asked} tokens, but the model has {positions} positions. Lower "
            "data.max_prompt_length or data.max_response_length, or set model.override_config.max_position_embeddings if "
            "the model really can"
        )
        raise ConfigError(msg)
    return int(asked)


def choose_dtype(rollout: Any, device_type: str) -> str:
    """The number format of weights and cache; see ``VllmRolloutConfig.dtype``."""
    own = VllmRolloutConfig.below(rollout).dtype
    if own is None and device_type == "cpu" and rollout.dtype in ("bfloat16", "bf16"):
        _log.info("rollout 'vllm' computes in float32 on the CPU; rollout.vllm.dtype=bfloat16 makes it bfloat16")
        return "float32"
    name = str(own or rollout.dtype)
    return {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(name, name)


def engine_arguments(model: Any, rollout: Any, *, folder: str, max_model_len: int, device_type: str) -> dict[str, Any]:
    """What ``AsyncEngineArgs`` gets.

    Args:
        model: the ``model`` section.
        rollout: the ``rollout`` section.
        folder: of the model.
        max_model_len: see ``longest_sequence``.
        device_type: ``cuda`` or ``cpu``.

    Raises:
        ConfigError: ``engine_kwargs.vllm`` sets what has a key of its own.
    """
    own = VllmRolloutConfig.below(rollout)
    span = rollout.tensor_model_parallel_size * rollout.pipeline_model_parallel_size
    is_cuda = device_type == "cuda"
    arguments: dict[str, Any] = {
        "model": folder,
        "trust_remote_code": bool(getattr(model, "trust_remote_code", False)),
        "skip_tokenizer_init": bool(rollout.skip_tokenizer_init),
        "load_format": rollout.load_format,
        "dtype": choose_dtype(rollout, device_type),
        "quantization": rollout.quantization,
        "max_model_len": max_model_len,
        "max_num_seqs": rollout.max_num_seqs,
        "max_num_batched_tokens": max(rollout.max_num_batched_tokens, rollout.max_num_seqs),
        "tensor_parallel_size": rollout.tensor_model_parallel_size,
        "pipeline_parallel_size": rollout.pipeline_model_parallel_size,
        "enable_expert_parallel": rollout.expert_parallel_size > 1,
        "enable_chunked_prefill": rollout.enable_chunked_prefill,
        "enable_prefix_caching": rollout.enable_prefix_caching,
        "enforce_eager": rollout.enforce_eager or not is_cuda,
        "logprobs_mode": rollout.logprobs_mode,
        "scheduling_policy": rollout.scheduling_policy,
        "disable_log_stats": rollout.disable_log_stats,
        "enable_sleep_mode": is_cuda and rollout.free_cache_engine,
        # Requests say everything themselves; the model's own sampling settings must not fill gaps.
        "generation_config": "vllm",
        "worker_extension_cls": EXTENSION,
    }
    if is_cuda:
        arguments["gpu_memory_utilization"] = rollout.gpu_memory_utilization
        arguments["cudagraph_capture_sizes"] = rollout.cudagraph_capture_sizes
    if not rollout.enable_chunked_prefill:
        arguments["max_num_batched_tokens"] = max(arguments["max_num_batched_tokens"], max_model_len)
    cache_gib = own.cache_gib or (None if is_cuda else DEFAULT_CPU_CACHE_GIB)
    if cache_gib is not None:
        arguments["kv_cache_memory_bytes"] = int(cache_gib * _GIB)
    arguments["distributed_executor_backend"] = "mp" if span > 1 else "uni"
    adapter = served_adapter(model)
    if adapter is not None:
        arguments |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": adapter_room(adapter.rank)}
    arguments |= _model_arguments(model)
    return arguments | _given(rollout)


def served_adapter(model: Any) -> LoraSettings | None:
    """The adapter that is served beside the base model; None where there is none, or it comes merged (``lora.merge``)."""
    if bool(getattr(getattr(model, "lora", None), "merge", False)):
        return None
    return lora_settings(model)


def adapter_room(rank: int) -> int:
    """The smallest of vLLM's sizes that holds an adapter of ``rank``.

    Raises:
        ConfigError: there is none.
    """
    for size in _ADAPTER_RANKS:
        if rank <= size:
            return size
    msg = (
        f"model.lora_rank is {rank}, and vLLM serves adapters of rank {_ADAPTER_RANKS[-1]} at most. Lower it, or set "
        "model.lora.merge=true to send merged weights"
    )
    raise ConfigError(msg)


def _model_arguments(model: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    overrides = dict(getattr(model, "override_config", None) or {})
    overrides.pop("attn_implementation", None)  # of the trainer
    if overrides:
        arguments["hf_overrides"] = overrides
    if getattr(model, "hf_config_path", None):
        arguments["hf_config_path"] = model.hf_config_path
    if getattr(model, "tokenizer_path", None):
        arguments["tokenizer"] = model.tokenizer_path
    return arguments


def _given(rollout: Any) -> dict[str, Any]:
    given = dict((rollout.engine_kwargs or {}).get("vllm") or {})
    for name in given:
        if name in _OWN:
            msg = f"{_SECTION}.engine_kwargs.vllm.{name} was given, but {_OWN[name]}"
            raise ConfigError(msg)
    return given


def require_known(arguments: Mapping[str, Any], known: Collection[str], version: str) -> None:
    """Refuse arguments that the installed vLLM does not have, by the key that they came from.

    Raises:
        ConfigError: names them, and those that look alike.
    """
    strangers = sorted(set(arguments) - set(known))
    if strangers:
        lines = []
        for name in strangers:
            alike = difflib.get_close_matches(name, known, 3)
            lines.append(f"engine_kwargs.vllm.{name}" + (f" (did you mean {' or '.join(alike)}?)" if alike else ""))
        msg = f"vLLM {version} has no argument of that name: {_SECTION}.{f', {_SECTION}.'.join(lines)}; remove it"
        raise ConfigError(msg)
