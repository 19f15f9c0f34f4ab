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
            name="fsdp",
            aliases=("fsdp2",),
            target="rl_backend_fsdp.engine:FSDPEngine",
            summary="Any Hugging Face causal language model, sharded over the workers by PyTorch FSDP2.",
            requires=("torch>=2.11,<2.14",),
            capabilities=frozenset({"cpu", "lora", "sequence_parallel"}),
            config="rl_backend_fsdp.config:FSDPConfig",
            config_key="fsdp_config",
            mount=("actor", "ref", "critic", "reward_model"),
            tokenizer="rl_engine.models:load_tokenizer",
            memory="rl_backend_fsdp.memory:predict_memory",
        ),
    )
