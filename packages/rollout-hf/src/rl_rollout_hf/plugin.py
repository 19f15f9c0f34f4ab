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
            name="hf",
            target="rl_rollout_hf.server:HfRollout",
            summary="Built-in engine on transformers models: continuous batching, exact log-probs, any CPU or GPU.",
            requires=("torch>=2.11,<2.14", "transformers>=5.17,<5.25"),
            capabilities=frozenset({"cpu", "shared_process", "sleep"}),
            config="rl_rollout_hf.config:HfRolloutConfig",
            mount=("rollout",),
            memory="rl_rollout_hf.memory:predict_memory",
        )
    ]
