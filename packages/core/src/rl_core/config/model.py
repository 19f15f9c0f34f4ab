"""``actor_rollout_ref.model.*``: the language model that is trained, and what is attached to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.node import Node, choice, free_form, number


@dataclass
class LoraConfig(Node):
    """Low-rank adapters, beyond rank and alpha."""

    type: str = "lora"
    """Kind of adapter."""

    merge: bool = False
    """Send merged weights to the generation engine instead of the adapter alone."""

    export: str = choice("merged", "merged", "adapter")
    """What an export holds: the whole model with its adapters ``merged``, or the ``adapter`` alone as PEFT reads it."""

    dropout: float = number(0.0, ge=0, le=1)
    """Share of adapter inputs dropped while training; anything above 0 makes the ratio of the first pass not 1."""


@dataclass
class FusedKernelConfig(Node):
    """Fused output layer."""

    impl_backend: str = choice("torch", "torch", "triton")
    """Implementation of the fused log-prob kernel."""


@dataclass
class TiledMlpConfig(Node):
    """Multi-layer perceptrons computed in slices of the sequence, to save activation memory."""

    enabled: bool = False
    """Compute in slices."""

    num_shards: int = number(4, ge=1)
    """Slices per layer."""


@dataclass
class MultiTokenPredictionConfig(Node):
    """Extra prediction heads for models that have them."""

    enable: bool = False
    """Load the extra heads."""

    enable_train: bool = False
    """Train them."""

    enable_rollout: bool = False
    """Let the generation engine speculate with them."""

    detach_encoder: bool = False
    """Keep their gradient out of the trunk."""

    mtp_loss_scaling_factor: float = number(0.1, ge=0)
    """Weight of their loss."""

    method: str = "mtp"
    """Speculation method the generation engine is asked for."""

    num_speculative_tokens: int = number(1, ge=1)
    """Tokens speculated at a time."""


@dataclass
class ModelConfig(Node):
    """The policy's model."""

    path: str | None = None
    """Folder or hub name of the model that is trained. Every engine that loads a model needs it."""

    hf_config_path: str | None = None
    """Folder of the model's configuration; null takes ``path``."""

    tokenizer_path: str | None = None
    """Folder of the tokenizer and processor; null takes ``path``."""

    use_shm: bool = False
    """Copy the weights to shared memory before loading."""

    trust_remote_code: bool = False
    """Run Python code that comes with the model. Off, because that code runs as you."""

    custom_chat_template: str | None = None
    """Chat template text that replaces the tokenizer's."""

    external_lib: str | None = None
    """Module imported in every worker before the model is built."""

    override_config: dict[str, Any] = free_form()
    """Entries that replace those of the model's own configuration."""

    enable_gradient_checkpointing: bool = True
    """Recompute activations in the backward pass: less memory, about a third more compute."""

    enable_activation_offload: bool = False
    """Keep activations in host memory between forward and backward."""

    use_remove_padding: bool = True
    """Pack sequences without padding. Off pads, for models that cannot keep packed sequences apart."""

    lora_rank: int = number(0, ge=0)
    """Rank of the low-rank adapters; 0 trains all weights."""

    lora_alpha: float = number(16, gt=0)
    """Adapters are scaled by ``lora_alpha / lora_rank``."""

    target_modules: Any = "all-linear"
    """Layers that get an adapter: a name, a list, or ``all-linear``."""

    exclude_modules: Any = None
    """Layers that get none."""

    lora_adapter_path: str | None = None
    """Adapter to start from."""

    lora: LoraConfig = field(default_factory=LoraConfig)
    """Further adapter settings."""

    use_liger: bool = False
    """Use the Liger kernels, where they are installed and know the model."""

    use_fused_kernels: bool = False
    """Compute log-probs and entropy in a fused output layer."""

    fused_kernel_options: FusedKernelConfig = field(default_factory=FusedKernelConfig)
    """Settings of the fused output layer."""

    tiled_mlp: TiledMlpConfig = field(default_factory=TiledMlpConfig)
    """Sliced multi-layer perceptrons."""

    mtp: MultiTokenPredictionConfig = field(default_factory=MultiTokenPredictionConfig)
    """Multi-token prediction."""
