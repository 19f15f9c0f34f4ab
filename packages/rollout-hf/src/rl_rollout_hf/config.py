"""Own keys of the engine, ``actor_rollout_ref.rollout.hf.*``, and what it does with the common ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rl_core.config.node import Node, number

DEFAULT_CPU_CACHE_GIB = 4.0
"""Room for keys and values on a CPU when ``cache_gib`` is not set."""

CACHE_SHARE = 0.9
"""Part of a GPU's free memory that the cache may take; the rest is for the passes themselves."""


@dataclass
class HfRolloutConfig(Node):
    """The built-in generation engine."""

    dtype: str | None = None
    """Number format of weights and cache, whatever the device. Null takes ``rollout.dtype``, except that its default,
    bfloat16, means float32 on a CPU: there it is slower, and log-probs would differ from the trainer's."""

    cache_gib: float | None = number(None, gt=0)
    """Memory for keys and values in GiB. Null takes what ``rollout.gpu_memory_utilization`` leaves beside the weights on
    a GPU, and 4 on a CPU. Too little makes sequences wait, or start again from their prompt."""

    common_keys: ClassVar[frozenset[str]] = frozenset(
        {
            "data_parallel_size",
            "dtype",
            "expert_parallel_size",
            "gpu_memory_utilization",
            "logprobs_mode",
            "max_model_len",
            "max_num_batched_tokens",
            "max_num_seqs",
            "pipeline_model_parallel_size",
            "quantization",
            "skip_tokenizer_init",
            "tensor_model_parallel_size",
        }
    )
    """Keys of the ``rollout`` section that the engine reads."""

    inert_keys: ClassVar[Mapping[str, str]] = {
        "cudagraph_capture_sizes": "rollout 'hf' captures no graphs",
        "disable_log_stats": "rollout 'hf' has no statistics of its own",
        "enable_chunked_prefill": "rollout 'hf' takes a prompt in one piece",
        "enable_prefix_caching": "rollout 'hf' keeps no prefixes; equal prompts that start together are read once",
        "enforce_eager": "rollout 'hf' captures no graphs",
        "full_determinism": "rollout 'hf' repeats a batch to the bit anyway, and has no kernels that are the same in any",
        "load_format": "the weights of rollout 'hf' always come from the trainer",
        "scheduling_policy": "rollout 'hf' takes requests in the order in which they come",
    }
    """Other common keys -> why they do nothing."""

    @classmethod
    def below(cls, rollout: Any) -> HfRolloutConfig:
        """The section as it is mounted below ``rollout``, or the defaults where nothing is mounted."""
        found = getattr(rollout, "hf", None)
        return cls() if found is None else found
