"""``critic.*``: the value function."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.node import Node, free_form, number, plugin
from rl_core.config.optim import CheckpointConfig, OptimConfig
from rl_core.config.profiler import RoleProfilerConfig


@dataclass
class CriticModelConfig(Node):
    """The value function's model."""

    path: str | None = None
    """Folder or hub name of the model under the value head; null takes the actor's."""

    tokenizer_path: str | None = None
    """Folder of its tokenizer; null takes ``path``."""

    override_config: dict[str, Any] = free_form()
    """Entries that replace those of the model's own configuration."""

    external_lib: str | None = None
    """Module imported in every worker before the model is built."""

    trust_remote_code: bool | None = None
    """Run Python code that comes with the model; null takes the actor's."""

    use_shm: bool = False
    """Copy the weights to shared memory before loading."""

    enable_gradient_checkpointing: bool = True
    """Recompute activations in the backward pass."""

    enable_activation_offload: bool = False
    """Keep activations in host memory between forward and backward."""

    use_remove_padding: bool | None = None
    """Pack sequences without padding; null takes the actor's."""

    lora_rank: int = number(0, ge=0)
    """Rank of the low-rank adapters; 0 trains all weights."""

    lora_alpha: float = number(16, gt=0)
    """Adapters are scaled by ``lora_alpha / lora_rank``."""

    target_modules: Any = "all-linear"
    """Layers that get an adapter."""

    tiled_mlp: dict[str, Any] = free_form()
    """Sliced multi-layer perceptrons, as in the actor's model."""


@dataclass
class CriticConfig(Node):
    """Optimizer steps on the value function."""

    enable: bool | None = None
    """Train a value function; null: exactly when the advantage estimator needs one."""

    strategy: str | None = plugin("backend", None)
    """Training engine by name; null takes the actor's."""

    model: CriticModelConfig = field(default_factory=CriticModelConfig)
    """Model of the value function."""

    optim: OptimConfig = field(default_factory=lambda: OptimConfig(lr=1e-5))
    """Optimizer of the value function."""

    ppo_mini_batch_size: int | None = number(None, ge=1)
    """Prompts per optimizer step; null takes the actor's."""

    ppo_micro_batch_size: int | None = number(None, ge=1)
    """Responses per forward and backward pass over all workers together; use the next key."""

    ppo_micro_batch_size_per_gpu: int | None = number(None, ge=1)
    """Responses per forward and backward pass on one worker."""

    forward_micro_batch_size: int | None = number(None, ge=1)
    """Responses per pass that only computes values, over all workers; null takes ``ppo_micro_batch_size``."""

    forward_micro_batch_size_per_gpu: int | None = number(None, ge=1)
    """The same on one worker; null takes ``ppo_micro_batch_size_per_gpu``."""

    use_dynamic_bsz: bool | None = None
    """Pack passes by tokens; null turns it on when no micro-batch size is given."""

    ppo_max_token_len_per_gpu: int = number(32768, ge=1)
    """Tokens per forward and backward pass on one worker, when packing by tokens."""

    forward_max_token_len_per_gpu: int | None = number(None, ge=1)
    """Tokens per pass that only computes values; null takes ``ppo_max_token_len_per_gpu``."""

    ppo_epochs: int | None = number(None, ge=1)
    """Passes over a step's responses; null takes the actor's."""

    shuffle: bool | None = None
    """Random mini-batches; null takes the actor's."""

    data_loader_seed: int | None = None
    """Seed of that order; null takes the actor's."""

    cliprange_value: float = number(0.5, gt=0)
    """How far a value may move from the old one before its loss is clipped."""

    loss_agg_mode: str | None = plugin("loss_aggregation", None)
    """How token losses become one number; null takes the actor's."""

    grad_clip: float = number(1.0, gt=0)
    """Largest gradient norm."""

    ulysses_sequence_parallel_size: int = number(1, ge=1)
    """Workers that share one sequence."""

    enable_resource_pool: bool = False
    """Give the value function workers of its own instead of the shared ones."""

    nnodes: int = number(0, ge=0)
    """Nodes of that pool."""

    n_gpus_per_node: int = number(0, ge=0)
    """Workers per node of that pool."""

    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """Checkpoint of the value function."""

    profiler: RoleProfilerConfig = field(default_factory=RoleProfilerConfig)
    """Profiling of this role."""
