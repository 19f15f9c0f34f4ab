"""Own keys of the engine, ``actor_rollout_ref.rollout.vllm.*``, and what it does with the common ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rl_core.config.node import Node, number

DEFAULT_CPU_CACHE_GIB = 4.0
"""Room for keys and values on a CPU when ``cache_gib`` is not set."""


@dataclass
class VllmRolloutConfig(Node):
    """vLLM. Whatever has no key here goes to it by ``rollout.engine_kwargs.vllm``."""

    dtype: str | None = None
    """Number format of weights and cache, whatever the device. Null takes ``rollout.dtype``, except that its default,
    bfloat16, means float32 on a CPU: there it is slower, and log-probs would differ from the trainer's."""

    cache_gib: float | None = number(None, gt=0)
    """Memory for keys and values in GiB on each device. Null takes what ``rollout.gpu_memory_utilization`` leaves beside
    the weights on a GPU, and 4 on a CPU. Too little makes sequences wait, or start again from their prompt."""

    start_deadline_s: float = number(900.0, gt=0)
    """Seconds that the engine may take to start, captured graphs and compilation included."""

    min_freed_share: float = number(0.9, ge=0, le=1)
    """Share of the weights and the cache that a sleep must give back to a GPU, as the device itself counts; less is an
    error that names what still holds it. 0 checks nothing."""

    common_keys: ClassVar[frozenset[str]] = frozenset(
        {
            "cudagraph_capture_sizes",
            "data_parallel_size",
            "disable_log_stats",
            "dtype",
            "enable_chunked_prefill",
            "enable_prefix_caching",
            "enforce_eager",
            "engine_kwargs.vllm.*",
            "expert_parallel_size",
            "full_determinism",
            "gpu_memory_utilization",
            "load_format",
            "logprobs_mode",
            "max_model_len",
            "max_num_batched_tokens",
            "max_num_seqs",
            "pipeline_model_parallel_size",
            "quantization",
            "scheduling_policy",
            "skip_tokenizer_init",
            "tensor_model_parallel_size",
        }
    )
    """Keys of the ``rollout`` section that the engine reads."""

    inert_keys: ClassVar[Mapping[str, str]] = {
        "quantization_config_file": "vLLM takes the settings from the model's configuration or engine_kwargs.vllm.hf_overrides",
        "router_config_path": "each replica answers the requests that the controller sends to it",
        "prometheus": "rollout 'vllm' reports its figures as metrics of the run",
    }
    """Other common keys -> why they do nothing."""

    @classmethod
    def below(cls, rollout: Any) -> VllmRolloutConfig:
        """The section as it is mounted below ``rollout``, or the defaults where nothing is mounted."""
        found = getattr(rollout, "vllm", None)
        return cls() if found is None else found
