"""The whole configuration of the training of a reward model (``rl rm``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.node import Node, choice, number
from rl_core.config.offline import OfflineConfig, OfflineDataConfig, OfflineRunConfig


@dataclass
class RMDataConfig(OfflineDataConfig):
    """Pairs of a better and a worse answer, and how many make an optimizer step."""

    train_files: Any = "~/data/pairs/train.parquet"
    """File or list of files with training pairs: parquet, json or jsonl."""

    val_files: Any = None
    """File or list of files with held-out pairs; null validates nothing."""

    train_batch_size: int = number(64, ge=1)
    """Pairs per optimizer step, over all workers together."""

    micro_batch_size_per_gpu: int | None = number(None, ge=1)
    """Pairs per forward and backward pass on one worker. Changes memory and speed, never a number."""

    truncation: str = choice("error", "error", "left", "drop")
    """What happens to a pair with a conversation longer than ``max_length``: ``error`` stops before training with the row's
    index; ``left`` drops the beginning of the longer conversation; ``drop`` leaves the pair out. Both are counted."""

    chosen_key: str = "chosen"
    """Column with the better conversation, a list of messages that ends with the assistant; or with the better answer."""

    rejected_key: str = "rejected"
    """Column with the worse one."""

    prompt_key: str = "prompt"
    """Column with what both have in common, where ``chosen`` and ``rejected`` are answers only: a list of messages, or a
    text, to which no template is applied. A row may lack it."""

    margin_key: str = "margin"
    """Column with a number by which the better score is to exceed the worse at least; a row may lack it, which is 0."""


@dataclass
class RMLossConfig(Node):
    """The loss of a pair."""

    center_coef: float = number(0.0, ge=0)
    """Weight of the square of the two scores' sum, which keeps scores near 0 on average; 0.01 is usual, 0 switches it off."""


@dataclass
class RMRunConfig(OfflineRunConfig):
    """The run."""

    experiment_name: str = "rm"
    """Name of the run in the trackers, and in the default run folder."""

    export_dir: str | None = "${trainer.default_local_dir}/huggingface"
    """Folder that gets the trained model after the last step, with tokenizer and chat template, as ``rl train`` takes it
    in ``reward_model.model.path`` and transformers as a sequence classifier; null writes none."""


@dataclass
class RMTrainerConfig(OfflineConfig):
    """Everything ``rl rm`` takes."""

    data: RMDataConfig = field(default_factory=RMDataConfig)
    """Pairs, step size."""

    loss: RMLossConfig = field(default_factory=RMLossConfig)
    """Loss of a pair."""

    trainer: RMRunConfig = field(default_factory=RMRunConfig)
    """Cluster shape, length of the run, files, limits."""
