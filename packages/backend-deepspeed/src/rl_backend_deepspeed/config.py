"""``<role>.deepspeed_config.*``: how a role's model is spread over its workers. Imports the standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

_FORMATS = ("fp32", "float32", "bf16", "bfloat16")


@dataclass
class DeepSpeedConfig:
    """How a role's model is spread over its workers."""

    zero_stage: int = field(default=2, metadata={"choices": (0, 1, 2, 3)})
    """What is cut over the workers: 1 the optimizer's state, 2 gradients too, 3 weights too. A role that is not trained is
    whole on every worker below 3; 0 is for such roles only."""

    model_dtype: str = field(default="fp32", metadata={"choices": _FORMATS})
    """Format of the weights that the optimizer changes; DeepSpeed has float32 alone for roles that are trained."""

    dtype: str | None = field(default=None, metadata={"choices": _FORMATS})
    """Format of the computation, in which weights are also sent and exported; null is bfloat16 on a GPU, and on the CPU
    that of ``model_dtype``."""

    reduce_dtype: str = field(default="fp32", metadata={"choices": _FORMATS})
    """Format in which gradients are added up over workers."""

    param_offload: bool = False
    """Keep weights and gradients in host memory while another role has the device."""

    optimizer_offload: bool = False
    """Keep the optimizer's state in host memory while another role has the device."""

    reduce_bucket_size: int = field(default=50_000_000, metadata={"gt": 0})
    """Numbers of a gradient bucket that workers add up in one exchange."""

    allgather_bucket_size: int = field(default=50_000_000, metadata={"gt": 0})
    """Numbers of the weights that workers exchange at a time after a step (stages 1 and 2)."""

    stage3_prefetch_bucket_size: int = field(default=50_000_000, metadata={"ge": 0})
    """Numbers of the weights that are gathered ahead of the computation."""

    stage3_param_persistence_threshold: int = field(default=0, metadata={"ge": 0})
    """Tensors with fewer numbers stay whole on every worker."""

    stage3_max_live_parameters: int = field(default=1_000_000_000, metadata={"ge": 0})
    """Numbers of gathered weights from which on they are released before more are gathered."""

    stage3_max_reuse_distance: int = field(default=1_000_000_000, metadata={"ge": 0})
    """Weights that are needed again within so many numbers are kept."""

    sub_group_size: int = field(default=1_000_000_000, metadata={"gt": 0})
    """Numbers that the optimizer steps over at a time (stage 3)."""

    config_file: str | None = None
    """A DeepSpeed JSON file of your own; what this section and the role's other keys decide must not be in it."""

    ds_config: dict[str, Any] = field(default_factory=dict, metadata={"free_form": True})
    """The same, written here; it wins over ``config_file``."""

    collective_timeout_s: float = field(default=600.0, metadata={"gt": 0})
    """How long a worker waits for the others in one exchange of tensors."""

    common_keys: ClassVar[frozenset[str]] = frozenset(
        {
            "grad_clip",
            "optim.*",
            "model.path",
            "model.hf_config_path",
            "model.tokenizer_path",
            "model.override_config.*",
            "model.trust_remote_code",
            "model.external_lib",
            "model.enable_gradient_checkpointing",
            "model.use_remove_padding",
            "model.lora_rank",
            "model.lora_alpha",
            "model.target_modules",
            "model.exclude_modules",
            "model.lora_adapter_path",
            "model.lora.*",
        }
    )
    """Keys of a role and of its model that this backend reads; ``rl check`` reports the others."""

    inert_keys: ClassVar[Mapping[str, str]] = {
        "entropy_from_logits_with_chunking": "the output layer always computes in chunks, forward and backward",
        "entropy_from_logits_chunk_size": "the engine chooses its chunks: 1,024 tokens",
        "entropy_checkpointing": "logits are always computed again in the backward pass, never kept",
        "use_torch_compile": "DeepSpeed's hooks around each block are not compiled",
        "checkpoint.async_save": "not in this version: a checkpoint is written before training goes on",
    }
    """Keys below a role's section that do nothing with this backend -> why."""
