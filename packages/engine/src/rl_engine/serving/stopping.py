"""When a response ends: token ids, strings in its text, and its length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rl_core.contracts.rollout import SamplingParams

Decode = Callable[[Sequence[int]], str]
"""Token ids -> their text, special tokens included."""

_INCOMPLETE = "\ufffd"
"""What a tokenizer decodes to while the bytes of a character are not all there."""


class StopStrings:
    """Looks for strings in the growing text of one response.

    Only new tokens are decoded, together with the few before them that their text may depend on.
    """

    def __init__(self, strings: Sequence[str], decode: Decode) -> None:
        """Look for any of ``strings``."""
        self._strings = tuple(strings)
        self._decode = decode
        self._text = ""
        self._searched = 0
        # Tokens before `_read` are in `_text`; those from `_context` on are decoded again, so that the text of the new
        # ones comes out as it does in the whole (spaces between words, characters of several tokens).
        self._context = self._read = 0

    def is_in(self, tokens: Sequence[int]) -> bool:
        """Whether one of the strings stands in the text of ``tokens``, which has grown since the last call."""
        known = self._decode(tokens[self._context : self._read])
        text = self._decode(tokens[self._context :])
        fresh = text[len(known) :]
        if not text.endswith(_INCOMPLETE):
            self._text += fresh
            self._context, self._read = self._read, len(tokens)
            fresh = ""
        return self._search(fresh.rstrip(_INCOMPLETE))

    def _search(self, unsettled: str) -> bool:
        longest = max(map(len, self._strings))
        start = max(0, self._searched - longest + 1)
        window = self._text[start:] + unsettled
        self._searched = len(self._text)
        return any(string in window for string in self._strings)


def ending_ids(sampling: SamplingParams, eos_token_ids: Sequence[int]) -> tuple[int, ...]:
    """Tokens that end a response of this request; none with ``ignore_eos``."""
    return () if sampling.ignore_eos else (*eos_token_ids, *sampling.stop_token_ids)
