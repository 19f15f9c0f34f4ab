"""From the ``rollout`` section to what the engine works with. Everything that cannot work is refused here."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

import torch
from rl_core.errors import ConfigError
from rl_engine.models import dtype_by_name
from transformers import PreTrainedConfig

from rl_rollout_hf.config import CACHE_SHARE, DEFAULT_CPU_CACHE_GIB, HfRolloutConfig

_log = logging.getLogger(__name__)

_SPANS: Final = (
    "tensor_model_parallel_size",
    "data_parallel_size",
    "expert_parallel_size",
    "pipeline_model_parallel_size",
)
_LOG_PROBS: Final = ("processed_logprobs", "raw_logprobs")
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Settings:
    """What the engine reads of the configuration.

    Attributes:
        max_model_len: most tokens of prompt and response together.
        max_num_seqs: sequences that run at a time.
        max_num_batched_tokens: tokens of one step.
        with_log_probs: return log-probs.
        raw_log_probs: those of the unchanged logits.
        device_share: share of a GPU for weights and cache.
        cache_gib: memory for the cache, where it was given.
    """

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    with_log_probs: bool
    raw_log_probs: bool
    device_share: float
    cache_gib: float | None


def require_supported(rollout: Any) -> None:
    """Refuse what the engine does not do.

    Raises:
        ConfigError: a replica of several workers, quantised weights, or unknown log-probs.
    """
    for key in _SPANS:
        size = getattr(rollout, key)
        if size != 1:
            msg = (
                f"actor_rollout_ref.rollout.{key} is {size}, but each worker of rollout 'hf' is a replica of its own; "
                "set it to 1, or choose an engine that can span workers (rollout.name)"
            )
            raise ConfigError(msg)
    if rollout.quantization is not None:
        msg = (
            f"actor_rollout_ref.rollout.quantization is {rollout.quantization!r}; rollout 'hf' serves plain weights "
            "alone. Leave it null, or choose another engine (rollout.name)"
        )
        raise ConfigError(msg)
    if rollout.logprobs_mode not in _LOG_PROBS:
        msg = f"actor_rollout_ref.rollout.logprobs_mode is {rollout.logprobs_mode!r}; rollout 'hf' has {_LOG_PROBS}"
        raise ConfigError(msg)


def read_settings(rollout: Any, model_config: PreTrainedConfig) -> Settings:
    """The settings for a model.

    Raises:
        ConfigError: sequences would be longer than the model's positions.
    """
    own = HfRolloutConfig.below(rollout)
    positions = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    from_data = (rollout.prompt_length or 0) + (rollout.response_length or 0)
    asked = rollout.max_model_len or from_data or positions
    if asked is None or (positions is not None and asked > positions):
        source = (
            f"rollout.max_model_len ({rollout.max_model_len})"
            if rollout.max_model_len
            else f"prompt ({rollout.prompt_length}) and response ({rollout.response_length})"
        )
        msg = (
            f"{source} ask for sequences of {asked} tokens, but model type {model_config.model_type!r} has {positions} "
            "positions. Lower data.max_prompt_length or data.max_response_length, or set "
            "model.override_config.max_position_embeddings if the model really can"
        )
        raise ConfigError(msg)
    return Settings(
        max_model_len=asked,
        max_num_seqs=rollout.max_num_seqs,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
        with_log_probs=rollout.calculate_log_probs,
        raw_log_probs=rollout.logprobs_mode == "raw_logprobs",
        device_share=rollout.gpu_memory_utilization,
        cache_gib=own.cache_gib,
    )


def choose_dtype(rollout: Any, device: torch.device) -> torch.dtype:
    """The number format of weights and cache; see ``HfRolloutConfig.dtype``.

    Raises:
        ConfigError: no such type.
    """
    own = HfRolloutConfig.below(rollout).dtype
    dtype = dtype_by_name(own or rollout.dtype)
    if own is None and device.type == "cpu" and dtype == torch.bfloat16:
        _log.info("rollout 'hf' computes in float32 on the CPU; rollout.hf.dtype=bfloat16 makes it bfloat16")
        return torch.float32
    return dtype


def cache_budget(settings: Settings, *, weight_bytes: int, bytes_per_token: int, device: torch.device) -> int:
    """Tokens that the cache may hold.

    Args:
        settings: of the engine.
        weight_bytes: size of the weights, which are on the device.
        bytes_per_token: size of a token in the cache.
        device: of both.

    Raises:
        ConfigError: not even one sequence of ``max_model_len`` fits.
    """
    if settings.cache_gib is not None:
        room, source = settings.cache_gib * _GIB, "rollout.hf.cache_gib"
    elif device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        # What torch keeps for itself but does not use is as good as free.
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        room = min(settings.device_share * total - weight_bytes, free * CACHE_SHARE)
        source = f"rollout.gpu_memory_utilization ({settings.device_share}, {free / _GIB:.1f} GiB free)"
    else:
        room, source = DEFAULT_CPU_CACHE_GIB * _GIB, "rollout.hf.cache_gib"
    tokens = int(room // bytes_per_token)
    if tokens < settings.max_model_len:
        needed = settings.max_model_len * bytes_per_token / _GIB
        msg = (
            f"{source} leaves {room / _GIB:.2f} GiB for keys and values, {max(tokens, 0)} tokens; one sequence of "
            f"{settings.max_model_len} tokens needs {needed:.2f} GiB. Raise it, or lower rollout.max_model_len"
        )
        raise ConfigError(msg)
    return tokens
