"""Token ids of texts that no chat template renders."""

from __future__ import annotations

from typing import Any


def encode_text(tokenizer: Any, text: str) -> list[int]:
    """Ids of a text that is to be continued: begun by one token where the tokenizer begins texts so, closed by none.

    Args:
        tokenizer: needs ``encode``; with its defaults it adds what it adds to any text.
        text: may itself begin with the token that begins a text, written out.
    """
    ids = list(tokenizer.encode(text))
    bos, eos = getattr(tokenizer, "bos_token_id", None), getattr(tokenizer, "eos_token_id", None)
    if bos is not None and ids[:2] == [bos, bos]:
        del ids[0]
    ends = eos is not None and len(ids) > 1 and ids[-1] == eos != bos
    if ends and not text.endswith(str(getattr(tokenizer, "eos_token", None))):
        del ids[-1]  # some tokenizers close every text
    return ids


def adds_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer puts a token in front of every text of its own accord."""
    bos = getattr(tokenizer, "bos_token_id", None)
    return bos is not None and list(tokenizer.encode("a"))[:1] == [bos]
