"""The whole configuration of supervised fine-tuning (``rl sft``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.model import ModelConfig
from rl_core.config.node import Node, choice, free_form, number, plugin
from rl_core.config.optim import OptimConfig
from rl_core.config.ray import RayConfig
from rl_core.config.trainer import RunConfig
from rl_core.plugins.hints import DEFAULT_BACKEND


@dataclass
class SFTDataConfig(Node):
    """Conversations, and how many make an optimizer step."""

    train_files: Any = "~/data/sft/train.parquet"
    """File or list of files with training rows: parquet, json or jsonl."""

    val_files: Any = None
    """File or list of files with validation rows; null validates nothing."""

    train_batch_size: int = number(256, ge=1)
    """Conversations per optimizer step, over all workers together."""

    micro_batch_size_per_gpu: int | None = number(None, ge=1)
    """Conversations per forward and backward pass on one worker. Changes memory and speed, never a number."""

    use_dynamic_bsz: bool | None = None
    """Pack passes by tokens instead of by conversations; null turns it on when no micro-batch size is given."""

    max_token_len_per_gpu: int = number(8192, ge=1)
    """Tokens per forward and backward pass on one worker, when packing by tokens. It bounds the memory of a pass; where the
    engine has no kernel for packed sequences, the cost of attention grows with its square."""

    max_length: int = number(1024, ge=2)
    """Longest conversation in tokens, template and tools included. ``truncation`` says what happens to longer ones."""

    truncation: str = choice("error", "error", "left", "right")
    """What happens to a longer conversation: ``error`` stops before training with the row's index; ``left`` drops its
    beginning, ``right`` its end. Cut rows are counted; one that loses all its assistant tokens is left out."""

    messages_key: str = "messages"
    """Column with the conversation: a list of messages with ``role`` and ``content``."""

    tools_key: str = "tools"
    """Column with the tools of the conversation, for templates that show them; a row may lack it."""

    prompt_key: str = "prompt"
    """Column with the prompt as text, for rows without ``messages_key``: no template is applied."""

    response_key: str = "response"
    """Column with the response to such a prompt; the token that ends a text is learned after it."""

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
class SFTEngineConfig(Node):
    """The training engine."""

    strategy: str = plugin("backend", DEFAULT_BACKEND)
    """Training engine (backend plugin) by name. Its own settings stand in its own section beside this key."""

    grad_clip: float = number(1.0, gt=0)
    """Largest gradient norm; a longer gradient is scaled down."""

    ulysses_sequence_parallel_size: int = number(1, ge=1)
    """Workers that share one sequence."""


@dataclass
class SFTRunConfig(RunConfig):
    """The run."""

    total_epochs: int = number(1, ge=1)
    """Passes over the training rows."""

    project_name: str = "rl_examples"
    """Project in the trackers, and in the default run folder."""

    experiment_name: str = "sft"
    """Name of the run in the trackers, and in the default run folder."""

    max_ckpt_to_keep: int | None = number(None, ge=1)
    """Newest checkpoints that are kept; null keeps all. The newest complete one is never deleted."""

    export_dir: str | None = "${trainer.default_local_dir}/huggingface"
    """Folder that gets the trained model after the last step, with tokenizer and chat template, as ``rl train`` takes it
    in ``actor_rollout_ref.model.path``; null writes none."""


@dataclass
class SFTTrainerConfig(Node):
    """Everything ``rl sft`` takes."""

    data: SFTDataConfig = field(default_factory=SFTDataConfig)
    """Conversations, step size."""

    model: ModelConfig = field(default_factory=ModelConfig)
    """The model that is trained."""

    engine: SFTEngineConfig = field(default_factory=SFTEngineConfig)
    """Training engine."""

    optim: OptimConfig = field(default_factory=lambda: OptimConfig(lr=1e-5))
    """Optimizer and learning-rate schedule."""

    trainer: SFTRunConfig = field(default_factory=SFTRunConfig)
    """Cluster shape, length of the run, files, limits."""

    ray_kwargs: RayConfig = field(default_factory=RayConfig)
    """Ray."""
