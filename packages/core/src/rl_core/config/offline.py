"""What the configurations of runs have in common that train one model on a file (``rl sft``, ``rl rm``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.model import ModelConfig
from rl_core.config.node import Node, free_form, number, plugin
from rl_core.config.optim import OptimConfig
from rl_core.config.ray import RayConfig
from rl_core.config.trainer import RunConfig
from rl_core.plugins.hints import DEFAULT_BACKEND


@dataclass
class OfflineDataConfig(Node):
    """Rows, and how many make an optimizer step."""

    train_files: Any = None
    """File or list of files with training rows: parquet, json or jsonl."""

    val_files: Any = None
    """File or list of files with validation rows; null validates nothing."""

    train_batch_size: int = number(256, ge=1)
    """Rows per optimizer step, over all workers together."""

    micro_batch_size_per_gpu: int | None = number(None, ge=1)
    """Rows per forward and backward pass on one worker. Changes memory and speed, never a number."""

    use_dynamic_bsz: bool | None = None
    """Pack passes by tokens instead of by rows; null turns it on when no micro-batch size is given."""

    max_token_len_per_gpu: int = number(8192, ge=1)
    """Tokens per forward and backward pass on one worker, when packing by tokens. It bounds the memory of a pass; where the
    engine has no kernel for packed sequences, the cost of attention grows with its square."""

    max_length: int = number(1024, ge=2)
    """Longest conversation in tokens, template and tools included. ``truncation`` says what happens to longer ones."""

    tools_key: str = "tools"
    """Column with the tools of the conversation, for templates that show them; a row may lack it."""

    shuffle: bool = True
    """Draw training rows in random order, a new one each epoch."""

    seed: int | None = None
    """Seed of that order; null takes ``trainer.seed``."""

    train_max_samples: int = number(-1, ge=-1)
    """Use at most this many training rows; -1 uses all."""

    val_max_samples: int = number(-1, ge=-1)
    """Use at most this many validation rows; -1 uses all."""

    apply_chat_template_kwargs: dict[str, Any] = free_form()
    """Passed to the tokenizer's chat template as they are, for example ``enable_thinking``."""


@dataclass
class OfflineEngineConfig(Node):
    """The training engine."""

    strategy: str = plugin("backend", DEFAULT_BACKEND)
    """Training engine (backend plugin) by name. Its own settings stand in its own section beside this key."""

    grad_clip: float = number(1.0, gt=0)
    """Largest gradient norm; a longer gradient is scaled down."""

    ulysses_sequence_parallel_size: int = number(1, ge=1)
    """Workers that share one sequence."""


@dataclass
class OfflineCheckpointConfig(Node):
    """How checkpoints are written."""

    async_save: bool = False
    """Write in the background while training goes on."""


@dataclass
class OfflineRunConfig(RunConfig):
    """The run."""

    total_epochs: int = number(1, ge=1)
    """Passes over the training rows."""

    project_name: str = "rl_examples"
    """Project in the trackers, and in the default run folder."""

    experiment_name: str = "offline"
    """Name of the run in the trackers, and in the default run folder."""

    max_ckpt_to_keep: int | None = number(None, ge=1)
    """Newest checkpoints that are kept; null keeps all. The newest complete one is never deleted."""

    export_dir: str | None = "${trainer.default_local_dir}/huggingface"
    """Folder that gets the trained model after the last step, with tokenizer and chat template; null writes none."""


@dataclass
class OfflineConfig(Node):
    """Everything that such a run takes."""

    data: OfflineDataConfig = field(default_factory=OfflineDataConfig)
    """Rows, step size."""

    model: ModelConfig = field(default_factory=ModelConfig)
    """The model that is trained."""

    engine: OfflineEngineConfig = field(default_factory=OfflineEngineConfig)
    """Training engine."""

    optim: OptimConfig = field(default_factory=lambda: OptimConfig(lr=1e-5))
    """Optimizer and learning-rate schedule."""

    checkpoint: OfflineCheckpointConfig = field(default_factory=OfflineCheckpointConfig)
    """How checkpoints are written."""

    trainer: OfflineRunConfig = field(default_factory=OfflineRunConfig)
    """Cluster shape, length of the run, files, limits."""

    ray_kwargs: RayConfig = field(default_factory=RayConfig)
    """Ray."""
