"""``data.*``: which rows are read, how they become prompts, and how many make a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.node import Node, choice, free_form, number


@dataclass
class CustomClassConfig(Node):
    """A class given by file instead of by plugin name."""

    path: str | None = None
    """Python file that holds the class; null uses the built-in one."""

    name: str | None = None
    """Name of the class inside ``path``."""


@dataclass
class DataConfig(Node):
    """Rows, prompts and step size."""

    train_files: Any = "~/data/rlhf/gsm8k/train.parquet"
    """File or list of files with training rows: parquet, json, jsonl, or ``hf://owner/name:configuration/split``."""

    train_files_weights: list[float] | None = None
    """Proportions in which the files of ``train_files`` are drawn, one number each; null draws every row once an epoch. With
    weights an epoch is as many draws as there are rows, and each file goes round at its own pace."""

    val_files: Any = "~/data/rlhf/gsm8k/test.parquet"
    """File or list of files with validation rows, as in ``train_files``."""

    train_batch_size: int = number(1024, ge=1)
    """Prompts sampled per step. Each is answered ``rollout.n`` times."""

    gen_batch_size: int | None = number(None, ge=1)
    """Dynamic sampling (``algorithm.filter_groups``): prompts of one generation, of which a step makes as many as it needs;
    null takes ``train_batch_size``. Without dynamic sampling a step is one generation of ``train_batch_size`` prompts."""

    val_batch_size: int | None = number(None, ge=1)
    """Prompts validated at a time; null validates the whole file at once."""

    max_prompt_length: int = number(512, ge=1)
    """Longest prompt in tokens, tools and template included. ``truncation`` says what happens to longer ones."""

    max_response_length: int = number(512, ge=1)
    """Longest response in tokens. Over several turns, tool answers count too."""

    train_max_samples: int = number(-1, ge=-1)
    """Use at most this many training rows, drawn at random where ``shuffle`` is on, else the first; -1 uses all."""

    val_max_samples: int = number(-1, ge=-1)
    """Use at most this many validation rows, the first; -1 uses all."""

    prompt_key: str = "prompt"
    """Column with the chat messages, or the text for a model without a chat template."""

    image_key: str = "images"
    """Column with images: a list of paths, bytes or mappings with either."""

    video_key: str = "videos"
    """Column with videos, in the same forms."""

    audio_key: str = "audios"
    """Column with audio clips, in the same forms."""

    reward_fn_key: str = "data_source"
    """Column that selects the reward rule of a row."""

    shuffle: bool = True
    """Draw training rows in random order, a new one each epoch."""

    seed: int | None = None
    """Seed of that order; null takes ``trainer.seed``."""

    validation_shuffle: bool = False
    """Draw validation rows in random order."""

    dataloader_num_workers: int = number(8, ge=0)
    """Processes that read rows while training goes on; rows are read and tokenised once, before it."""

    filter_overlong_prompts: bool = False
    """Leave out rows whose prompt exceeds ``max_prompt_length`` (counted and reported)."""

    filter_overlong_prompts_workers: int = number(1, ge=1)
    """Processes that render and tokenise prompts, which the filter looks at; 1 does it in the controller, as do fewer than
    2,000 rows."""

    truncation: str = choice("error", "error", "left", "right", "middle")
    """What happens to an over-long prompt that is not filtered: ``error`` stops before training with the row's
    index; the others cut from that side. Cut prompts are counted in the metrics."""

    return_raw_chat: bool = True
    """Keep the chat messages as column ``raw_prompt``; agent loops need them."""

    return_full_prompt: bool = False
    """Keep the templated prompt text as column ``full_prompts``."""

    return_raw_input_ids: bool = False
    """Keep the prompt's ids before truncation as column ``raw_prompt_ids``."""

    return_multi_modal_inputs: bool = True
    """Keep what the processor made of images, videos and audio for the training engine."""

    filter_prompts: bool = True
    """Old name of the length filter; see ``filter_overlong_prompts``."""

    apply_chat_template_kwargs: dict[str, Any] = free_form()
    """Passed to the tokenizer's chat template as they are, for example ``enable_thinking``."""

    mm_processor_kwargs: dict[str, Any] = free_form()
    """Passed to the multi-modal processor as they are."""

    custom_cls: CustomClassConfig = field(default_factory=CustomClassConfig)
    """Data set class from a file instead of the built-in one, see docs/data.md."""

    trust_remote_code: bool = False
    """Let the tokenizer run Python code that comes with the model. Off, because that code runs as you."""

    use_shm: bool = False
    """Copy data files to shared memory first."""

    tokenizer: str | None = None
    """Folder or name of another tokenizer for the data; null takes the model's."""

    image_patch_size: int = number(14, ge=1)
    """Side of an image patch in pixels, for models whose processor does not say."""

    tool_config_path: str | None = None
    """YAML file with tools that prompts show; null takes ``rollout.multi_turn.tool_config_path``."""

    function_tool_path: str | None = None
    """Python file whose functions are tools that prompts show; null takes ``rollout.multi_turn.function_tool_path``."""
