"""Token ids of a text in which some spans are learned.

A generator reads the text in front of a span as its prompt, and says the span with tokens of its own. So a token may not
stand across the edge of a span, even where the tokenizer would melt both sides into one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

Span = tuple[int, int]
"""First character, and the one behind the last."""

Encoded = tuple[list[int], list[bool]]
"""Token ids, and for each whether it is learned."""


def encode_spans(tokenizer: Any, text: str, spans: Sequence[Span]) -> Encoded | None:
    """Ids of ``text`` and which of them stand in ``spans``.

    The ids are those of the whole text where these have an edge at each edge of a span, and otherwise those of its parts.
    The text is encoded twice, whole and in parts, whatever the number of spans.

    Args:
        tokenizer: needs ``encode`` and ``decode``; offsets are used where it gives them.
        text: the whole text, special tokens written out.
        spans: what is learned: in order, apart from one another.

    Returns:
        None where the parts do not add up to the text.
    """
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    whole, offsets = _with_offsets(tokenizer, text)
    parts = _encode_all(tokenizer, [text[start:end] for start, end in pairwise(edges)])
    joined = [token for part in parts for token in part]
    if joined == whole or tokenizer.decode(joined, skip_special_tokens=False) == text:
        return joined, [number % 2 == 1 for number, part in enumerate(parts) for _ in part]
    # Tokenizers that put a blank in front of every text have other ids for a part than for the same part within the whole.
    if offsets is not None:
        cuts = [_cut(offsets, edge) for edge in edges[1:-1]]
    else:
        cuts = [_prefix(tokenizer, text[:edge], whole) for edge in edges[1:-1]]
    known = [0, *(cut for cut in cuts if cut is not None), len(whole)]
    if len(known) != len(edges):
        return None
    mask = [number % 2 == 1 for number, (start, end) in enumerate(pairwise(known)) for _ in range(start, end)]
    return whole, mask


def _with_offsets(tokenizer: Any, text: str) -> tuple[list[int], list[Span] | None]:
    if not getattr(tokenizer, "is_fast", False):
        return list(tokenizer.encode(text, add_special_tokens=False)), None
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return list(encoded["input_ids"]), list(encoded["offset_mapping"])


def _encode_all(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    if getattr(tokenizer, "is_fast", False):
        return [list(ids) for ids in tokenizer(list(texts), add_special_tokens=False)["input_ids"]]
    return [list(tokenizer.encode(text, add_special_tokens=False)) for text in texts]


def _cut(offsets: Sequence[Span], edge: int) -> int | None:
    """Number of the token that begins at ``edge``; None unless the one before ends there.

    Tokenizers that leave white space out of their offsets leave a gap, which may hide a token across the edge.
    """
    cut = bisect_left(offsets, edge, key=lambda span: span[0])
    before = offsets[cut - 1][1] if cut else 0
    return cut if before == edge and (cut == len(offsets) or offsets[cut][0] == edge) else None


def _prefix(tokenizer: Any, text: str, whole: list[int]) -> int | None:
    ids = list(tokenizer.encode(text, add_special_tokens=False))
    return len(ids) if whole[: len(ids)] == ids else None
