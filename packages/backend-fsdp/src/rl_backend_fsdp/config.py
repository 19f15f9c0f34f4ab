"""``<role>.fsdp_config.*``: how a role's model is spread over its workers. Imports the standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

_FORMATS = ("fp32", "float32", "bf16", "bfloat16", "fp16", "float16", "fp64", "float64")


@dataclass
class WrapPolicyConfig:
    """Which blocks of the model are sharded on their own, and gathered one after the other."""

    transformer_layer_cls_to_wrap: list[str] | None = None
    """Class names of those blocks; null takes what the model says about itself."""

    min_num_params: int = 0
    """Kept for commands of other systems: blocks are chosen by class, not by size."""


@dataclass
class FSDPConfig:
    """How a role's model is spread over its workers."""

    param_offload: bool = False
    """Keep weights and gradients in host memory while another role has the device."""

    optimizer_offload: bool = False
    """Keep the optimizer's state in host memory while another role has the device."""

    offload_policy: bool = False
    """Keep weights, gradients and optimizer state in host memory always, bring each block in when it is needed, and take
    optimizer steps on the host."""

    reshard_after_forward: bool | int = True
    """Give up a block's gathered weights after its forward pass and gather them again for its backward pass. A number keeps
    them gathered over as many neighbouring workers, which gather faster and hold more."""

    fsdp_size: int = -1
    """Workers that share one copy of the model, neighbours by rank; -1 is all of them."""

    forward_prefetch: bool = False
    """Start to gather the next block's weights before a block computes, not after; for runs that the host slows down."""

    model_dtype: str = field(default="fp32", metadata={"choices": _FORMATS})
    """Format of the weights that the optimizer changes."""

    dtype: str | None = field(default=None, metadata={"choices": _FORMATS})
    """Format of the computation, in which weights are also sent and exported; null is bfloat16 on a GPU, and on the CPU
    that of ``model_dtype``."""

    reduce_dtype: str = field(default="fp32", metadata={"choices": _FORMATS})
    """Format in which gradients are added up over workers, where ``dtype`` is a narrower one."""

    use_orig_params: bool = False
    """Kept for commands of other systems: FSDP2 always keeps the original parameters."""

    seed: int = 42
    """Kept for commands of other systems: ``trainer.seed`` seeds everything."""

    full_determinism: bool = False
    """Use only deterministic kernels while this role computes; an operation that has none is an error."""

    wrap_policy: WrapPolicyConfig = field(default_factory=WrapPolicyConfig)
    """Which blocks are sharded on their own."""

    use_no_sync_for_gradient_accumulation: bool = False
    """Add gradients up over workers once for a mini-batch instead of once for each pass: less traffic, but every worker
    holds gradients of the whole model meanwhile."""

    collective_timeout_s: float = field(default=600.0, metadata={"gt": 0})
    """How long a worker waits for the others in one exchange of tensors."""

    pad_to_length_bucket: int = 1024
    """Kept for commands of other systems: passes are not padded."""

    qat: dict[str, Any] = field(default_factory=dict, metadata={"free_form": True})
    """Quantisation-aware training."""

    turbo_config: dict[str, Any] = field(default_factory=dict, metadata={"free_form": True})
    """Kept for commands of other systems."""

    common_keys: ClassVar[frozenset[str]] = frozenset(
        {
            "grad_clip",
            "ulysses_sequence_parallel_size",
            "use_torch_compile",
            "optim.*",
            "checkpoint.async_save",
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
        "entropy_from_logits_chunk_size": "the engine chooses its chunks: 1,024 tokens, 4,096 compiled",
        "entropy_checkpointing": "logits are always computed again in the backward pass, never kept",
        "fsdp_config.use_orig_params": "FSDP2 always keeps the original parameters",
        "fsdp_config.seed": "trainer.seed seeds everything",
        "fsdp_config.wrap_policy.min_num_params": "blocks are chosen by class, not by size",
        "fsdp_config.pad_to_length_bucket": "passes are not padded",
        "fsdp_config.qat": "not in this version: quantisation-aware training",
        "fsdp_config.turbo_config": "a setting of another system",
    }
    """Keys below a role's section that do nothing with this backend -> why."""
