"""Token ids to text, for stop strings; everything else works on ids alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_engine.models import load_tokenizer

from rl_rollout_hf.stopping import Decode


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
