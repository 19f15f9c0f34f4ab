"""What the files beside a model say about text: which ids end it, and what ids mean; everything else works on ids alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig

from rl_engine.models import load_tokenizer
from rl_engine.serving.stopping import Decode


def load_decode(section: Any) -> Decode:
    """What the tokenizer of the ``model`` section makes of ids, special tokens included: stop strings may contain them.

    Raises:
        ConfigError: there is no tokenizer.
    """
    path = getattr(section, "tokenizer_path", None) or section.path
    tokenizer = load_tokenizer(path, trust_remote_code=bool(getattr(section, "trust_remote_code", False)))

    def decode(ids: Sequence[int]) -> str:
        text: str = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    return decode


def end_of_sequence_ids(folder: Path, config: PreTrainedConfig) -> tuple[int, ...]:
    """Every id that ends a sequence: those of the generation settings, otherwise that of the configuration.

    A configuration file that names none gets a default of its class, so it does not count beside generation settings.
    """
    if (folder / "generation_config.json").is_file():
        settings = GenerationConfig.from_pretrained(folder, local_files_only=True)
        if settings.eos_token_id is not None:
            return _as_ids(settings.eos_token_id)
    return _as_ids(getattr(config.get_text_config(), "eos_token_id", None))


def _as_ids(value: Any) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(dict.fromkeys(value or ()))
