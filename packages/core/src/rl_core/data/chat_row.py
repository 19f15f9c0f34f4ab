"""One row of a file of conversations: token ids and which of them are learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rl_core.data.assistant_mask import ConversationEncoder
from rl_core.data.files import Row
from rl_core.data.json_lists import parsed_list, parsed_messages
from rl_core.data.over_long import OverLongError
from rl_core.data.span_tokens import Encoded
from rl_core.data.text_ids import encode_text
from rl_core.errors import DataError

if TYPE_CHECKING:
    from rl_core.config import SFTDataConfig


class ChatRow(NamedTuple):
    """What a row becomes."""

    ids: list[int]
    mask: list[bool]
    """Whether each token is learned; the first never is."""

    num_tokens: int
    """Tokens before truncation."""


class ChatRowEncoder:
    """Tokenises rows of ``data.messages_key``, or of ``data.prompt_key`` and ``data.response_key``."""

    def __init__(self, config: SFTDataConfig, tokenizer: Any) -> None:
        """Look at the template.

        Args:
            config: the ``data`` section.
            tokenizer: of the model.
        """
        self._config = config
        self._tokenizer = tokenizer
        self._conversation = ConversationEncoder(tokenizer, config.apply_chat_template_kwargs)

    def notes(self) -> list[str]:
        """What the template does to training that nobody may expect."""
        return self._conversation.notes()

    def encode(self, index: int, row: Row) -> ChatRow:
        """Tokenise one row, and cut it where that is asked for.

        Raises:
            DataError: the row holds no conversation, or is too long and ``data.truncation`` is ``error``; names it by
                ``index``.
        """
        ids, mask = self._whole(index, row)
        limit = self._config.max_length
        num_tokens = len(ids)
        if num_tokens > limit:
            if self._config.truncation == "error":
                msg = (
                    f"row {index}: the conversation has {num_tokens} tokens, data.max_length is {limit}. Raise it, or cut "
                    "such rows with data.truncation=left|right."
                )
                raise OverLongError.of(msg, num_tokens)
            kept = slice(-limit, None) if self._config.truncation == "left" else slice(limit)
            ids, mask = ids[kept], mask[kept]
        # The first token has nothing before it that could predict it.
        return ChatRow(ids, [False, *mask[1:]], num_tokens)

    def _whole(self, index: int, row: Row) -> Encoded:
        config = self._config
        if row.get(config.messages_key) is not None:
            messages = parsed_messages(index, row[config.messages_key], config.messages_key)
            tools = parsed_list(index, row.get(config.tools_key), config.tools_key)
            return self._conversation.encode(index, messages, tools or None)
        prompt, response = row.get(config.prompt_key), row.get(config.response_key)
        if isinstance(prompt, str) and isinstance(response, str):
            return self._text(prompt, response)
        msg = (
            f"row {index} has neither a conversation in column {config.messages_key!r} (data.messages_key) nor texts in "
            f"{config.prompt_key!r} and {config.response_key!r} (data.prompt_key, data.response_key); it has "
            f"{', '.join(sorted(row))}"
        )
        raise DataError(msg)

    def _text(self, prompt: str, response: str) -> Encoded:
        """A prompt as ``rl train`` encodes it, then the response and the token that ends a text."""
        before = encode_text(self._tokenizer, prompt)
        after = list(self._tokenizer.encode(response, add_special_tokens=False))
        if self._tokenizer.eos_token_id is not None:
            after.append(self._tokenizer.eos_token_id)
        return before + after, [False] * len(before) + [True] * len(after)
