"""One side of a row of a file of preference pairs: token ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl_core.data.files import Row
from rl_core.data.json_lists import parsed_list, parsed_messages
from rl_core.data.text_ids import encode_text
from rl_core.errors import DataError

if TYPE_CHECKING:
    from rl_core.config import RMDataConfig


class PairEncoder:
    """Tokenises the sides of pairs."""

    def __init__(self, config: RMDataConfig, tokenizer: Any) -> None:
        """Store the ``data`` section and the tokenizer of the reward model."""
        self._config = config
        self._tokenizer = tokenizer

    def encode(self, index: int, row: Row, key: str) -> list[int]:
        """One side: a conversation as the template writes it to its end, or a text with the token that ends one.

        Args:
            index: of the row, for messages.
            row: as the file has it.
            key: column of the side.

        Raises:
            DataError: the row holds no such side.
        """
        prompt, answer = row.get(self._config.prompt_key), row.get(key)
        if isinstance(answer, str) and isinstance(prompt, str):
            ids = encode_text(self._tokenizer, prompt)
            ids += self._tokenizer.encode(answer, add_special_tokens=False)
            end = self._tokenizer.eos_token_id
            return ids if end is None else [*ids, end]
        if answer is None:
            msg = (
                f"row {index} has nothing in column {key!r} (data.chosen_key, data.rejected_key); it has "
                f"{', '.join(sorted(row))}"
            )
            raise DataError(msg)
        before = [] if prompt is None else parsed_messages(index, prompt, self._config.prompt_key)
        if isinstance(answer, str) and before:
            messages = [*before, {"role": "assistant", "content": answer}]
        else:
            messages = [*before, *parsed_messages(index, answer, key)]
        if messages[-1]["role"] != "assistant":
            msg = f"row {index}: {key} must end with what the assistant says; it ends with the role {messages[-1]['role']!r}"
            raise DataError(msg)
        tools = parsed_list(index, row.get(self._config.tools_key), self._config.tools_key)
        return self._rendered(index, messages, tools or None)

    def _rendered(self, index: int, messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
        arguments: Mapping[str, Any] = self._config.apply_chat_template_kwargs
        try:
            ids = self._tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=True, return_dict=False, **arguments
            )
        except (ValueError, TypeError) as error:
            msg = (
                f"row {index}: the conversation could not be rendered: {error}. A model without a chat template takes a "
                "template in model.custom_chat_template, or rows whose prompt and answers are texts."
            )
            raise DataError(msg) from error
        return list(ids)
