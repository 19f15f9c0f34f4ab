"""Registration of the backend; nothing is imported that it needs."""

from __future__ import annotations

from collections.abc import Iterable

from rl_core import hookimpl
from rl_core.plugins.records import BackendRecord, Record


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """The one record of this package."""
    return (
        BackendRecord(
            name="deepspeed",
            target="rl_backend_deepspeed.engine:DeepSpeedEngine",
            summary="Any Hugging Face causal language model, sharded over the workers by DeepSpeed's ZeRO 1, 2 or 3.",
            requires=("deepspeed>=0.19.8,<0.20", "torch>=2.11,<2.14"),
            capabilities=frozenset({"cpu", "lora"}),
            config="rl_backend_deepspeed.config:DeepSpeedConfig",
            config_key="deepspeed_config",
            mount=("actor", "ref", "critic", "reward_model"),
            tokenizer="rl_engine.models:load_tokenizer",
            memory="rl_backend_deepspeed.memory:predict_memory",
        ),
    )
