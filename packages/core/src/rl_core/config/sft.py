"""The whole configuration of supervised fine-tuning (``rl sft``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.node import choice, number
from rl_core.config.offline import OfflineConfig, OfflineDataConfig, OfflineRunConfig


@dataclass
class SFTDataConfig(OfflineDataConfig):
    """Conversations, and how many make an optimizer step."""

    train_files: Any = "~/data/sft/train.parquet"
    """File or list of files with training rows: parquet, json or jsonl."""

    train_batch_size: int = number(256, ge=1)
    """Conversations per optimizer step, over all workers together."""

    truncation: str = choice("error", "error", "left", "right")
    """What happens to a longer conversation: ``error`` stops before training with the row's index; ``left`` drops its
    beginning, ``right`` its end. Cut rows are counted; one that loses all its assistant tokens is left out."""

    messages_key: str = "messages"
    """Column with the conversation: a list of messages with ``role`` and ``content``."""

    prompt_key: str = "prompt"
    """Column with the prompt as text, for rows without ``messages_key``: no template is applied."""

    response_key: str = "response"
    """Column with the response to such a prompt; the token that ends a text is learned after it."""


@dataclass
class SFTRunConfig(OfflineRunConfig):
    """The run."""

    experiment_name: str = "sft"
    """Name of the run in the trackers, and in the default run folder."""

    export_dir: str | None = "${trainer.default_local_dir}/huggingface"
    """Folder that gets the trained model after the last step, with tokenizer and chat template, as ``rl train`` takes it
    in ``actor_rollout_ref.model.path``; null writes none."""


@dataclass
class SFTTrainerConfig(OfflineConfig):
    """Everything ``rl sft`` takes."""

    data: SFTDataConfig = field(default_factory=SFTDataConfig)
    """Conversations, step size."""

    trainer: SFTRunConfig = field(default_factory=SFTRunConfig)
    """Cluster shape, length of the run, files, limits."""
