"""A tokenizer of single characters, for runs without a model folder.

::

    id   0      1      2 .. 27   28 .. 37   38     39       40 ..
         pad    eos    a .. z    0 .. 9     space  newline  . , : ? + - = #

Upper case is folded; a character outside the alphabet becomes ``?``. The chat template writes ``role:content`` and a
newline for each message, so that rendering a longer conversation only ever appends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789 \n.,:?+-=#"
PAD_ID = 0
EOS_ID = 1
_FIRST = 2
_UNKNOWN = "?"
_ID_OF = {character: number for number, character in enumerate(ALPHABET, start=_FIRST)}


class TinyTokenizer:
    """The part of a Hugging Face tokenizer's interface that training uses."""

    pad_token = "<pad>"
    eos_token = "<eos>"
    pad_token_id = PAD_ID
    eos_token_id = EOS_ID
    bos_token_id: int | None = None
    chat_template: str | None = "role:content\\n"

    @property
    def vocab_size(self) -> int:
        """Number of ids: special tokens and alphabet."""
        return _FIRST + len(ALPHABET)

    @property
    def all_special_ids(self) -> list[int]:
        """Ids that stand for no character."""
        return [PAD_ID, EOS_ID]

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """One id for each character; there are no special tokens to add."""
        return [_ID_OF.get(character, _ID_OF[_UNKNOWN]) for character in text.lower()]

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text of ``token_ids``; special tokens by name unless skipped, ids beyond the alphabet as ``?``."""
        return "".join(self._text(int(token), skip_special_tokens) for token in token_ids)

    def batch_decode(self, sequences: Iterable[Iterable[int]], skip_special_tokens: bool = False) -> list[str]:
        """``decode`` of each sequence."""
        return [self.decode(sequence, skip_special_tokens) for sequence in sequences]

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        tokenize: bool = True,
        add_generation_prompt: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Render a conversation.

        Args:
            messages: dicts with ``role`` and ``content``.
            tokenize: give ids instead of text.
            add_generation_prompt: end with ``assistant:``, the opening of the policy's turn.
            tools: tool schemas, rendered in front as a line of JSON each.
            return_dict: wrap ids as ``{"input_ids": ..., "attention_mask": ...}``.
            kwargs: further template arguments, of which this template uses none.
        """
        lines = [f"tool:{json.dumps(tool, sort_keys=True)}\n" for tool in tools or ()]
        lines += [f"{message['role']}:{message['content']}\n" for message in messages]
        text = "".join(lines) + ("assistant:" if add_generation_prompt else "")
        if not tokenize:
            return text
        ids = self.encode(text)
        return {"input_ids": ids, "attention_mask": [1] * len(ids)} if return_dict else ids

    @staticmethod
    def _text(token: int, skip_special_tokens: bool) -> str:
        if token in (PAD_ID, EOS_ID):
            name = TinyTokenizer.pad_token if token == PAD_ID else TinyTokenizer.eos_token
            return "" if skip_special_tokens else name
        position = token - _FIRST
        return ALPHABET[position] if 0 <= position < len(ALPHABET) else _UNKNOWN


def load_tokenizer(path: str | None, **kwargs: Any) -> TinyTokenizer:
    """The tokenizer of every fake model; ``path`` is only a name, and ``kwargs`` are for tokenizers with files."""
    return TinyTokenizer()
