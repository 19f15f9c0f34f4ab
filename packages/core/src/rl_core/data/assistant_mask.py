r"""Token ids of a conversation, and which of them the assistant says.

::

    <|im_start|> user \n 2 + 2 ? <|im_end|> \n <|im_start|> assistant \n 4 <|im_end|> \n
         .        .    .  ...         .      .        .          .     .  x     x      .      x is learned

A template that marks the assistant's words itself (``{% generation %}``) is believed. Otherwise the conversation is cut
where a turn of the assistant opens and where it ends; the parts must add up to the whole conversation. What closes a
turn is learned, what a template puts between turns is not: the generator never says that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from rl_core.errors import DataError

Encoded = tuple[list[int], list[bool]]
"""Token ids, and for each whether it is learned."""

_GENERATION: Final = re.compile(r"\{%-?\s*generation\s*-?%\}")

Message = Mapping[str, Any]


class ConversationEncoder:
    """Renders conversations with a tokenizer's chat template."""

    def __init__(self, tokenizer: Any, template_kwargs: Mapping[str, Any]) -> None:
        """Look at the template.

        Args:
            tokenizer: needs ``apply_chat_template``, ``encode`` and ``decode``.
            template_kwargs: passed to the template.
        """
        self._tokenizer = tokenizer
        self._kwargs = dict(template_kwargs)
        template = tokenizer.chat_template
        texts = list(template.values()) if isinstance(template, Mapping) else [template]
        self._has_template = template is not None
        self._marks_itself = all(isinstance(text, str) and _GENERATION.search(text) for text in texts)
        self._special = _special_ids(tokenizer)

    def encode(self, row: int, messages: Sequence[Message], tools: Sequence[Any] | None) -> Encoded:
        """Ids of the whole conversation, as ``apply_chat_template(tokenize=True)`` gives them, and the mask.

        Args:
            row: number of the row, for messages.
            messages: the conversation.
            tools: schemas of tools the template shows; None without.

        Raises:
            DataError: the template cannot render the conversation, or not so that its turns can be told apart.
        """
        if not self._has_template:
            msg = (
                f"row {row} is a conversation, but the tokenizer has no chat template. Give one in "
                "model.custom_chat_template, or rows with the texts prompt and response."
            )
            raise DataError(msg)
        try:
            ids, mask = self._marked(messages, tools) if self._marks_itself else self._cut(row, messages, tools)
        except DataError:
            raise
        except Exception as error:  # templates are code of the model's: they raise what they like
            msg = f"row {row}: the chat template cannot render the conversation: {type(error).__name__}: {error}"
            raise DataError(msg) from error
        return ids, self._closed(ids, mask)

    def _marked(self, messages: Sequence[Message], tools: Sequence[Any] | None) -> Encoded:
        rendered = self._tokenizer.apply_chat_template(
            list(messages),
            tools=tools,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
            **self._kwargs,
        )
        return list(rendered["input_ids"]), [bool(mark) for mark in rendered["assistant_masks"]]

    def _cut(self, row: int, messages: Sequence[Message], tools: Sequence[Any] | None) -> Encoded:
        """Mask by turns: what is rendered up to a turn's opening, and up to its end, are beginnings of the whole."""
        whole = self._ids(messages, tools)
        bounds: list[int] = []
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            opening = self._ids(messages[:number], tools, opens=True)
            ending = self._ids(messages[: number + 1], tools)
            if whole[: len(opening)] != opening or whole[: len(ending)] != ending:
                return self._cut_text(row, messages, tools)
            bounds += [len(opening), len(ending)]
        return whole, _between(bounds, len(whole))

    def _cut_text(self, row: int, messages: Sequence[Message], tools: Sequence[Any] | None) -> Encoded:
        """The same on texts, each part with ids of its own, for turns whose first or last characters melt into a token.

        A generator that gets the opening as its prompt sees the same ids.
        """
        whole = self._rendered(messages, tools)
        bounds: list[int] = []
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            for text in (
                self._rendered(messages[:number], tools, opens=True),
                self._rendered(messages[: number + 1], tools),
            ):
                if not whole.startswith(text):
                    raise DataError(_not_a_beginning(row, number, whole, text))
                bounds.append(len(text))
        ids: list[int] = []
        mask: list[bool] = []
        edges = [0, *bounds, len(whole)]
        for part, (start, end) in enumerate(pairwise(edges)):
            piece = list(self._tokenizer.encode(whole[start:end], add_special_tokens=False))
            ids += piece
            mask += [part % 2 == 1] * len(piece)
        if self._tokenizer.decode(ids, skip_special_tokens=False) != whole:
            msg = (
                f"row {row}: the tokens of its turns do not add up to the conversation, so what the assistant says cannot "
                "be told. Use a chat template that marks it with {% generation %}, in model.custom_chat_template."
            )
            raise DataError(msg)
        return ids, mask

    def _closed(self, ids: list[int], mask: list[bool]) -> list[bool]:
        """The mask with each turn ending at the token that closes it.

        A special token that is followed by white space only ends the turn: the white space is the template's glue. Where a
        template's own mark stops short of the end-of-text token, that token is learned too.
        """
        closed = list(mask)
        for end in [n for n in range(1, len(ids) + 1) if mask[n - 1] and (n == len(ids) or not mask[n])]:
            last = end - 1
            while last > 0 and mask[last] and ids[last] not in self._special and self._is_blank(ids[last]):
                last -= 1
            if mask[last] and ids[last] in self._special:
                closed[last + 1 : end] = [False] * (end - last - 1)
            elif end < len(ids) and ids[end] == self._tokenizer.eos_token_id:
                closed[end] = True
        return closed

    def _is_blank(self, token: int) -> bool:
        return not self._tokenizer.decode([token], skip_special_tokens=False).strip()

    def _ids(self, messages: Sequence[Message], tools: Sequence[Any] | None, *, opens: bool = False) -> list[int]:
        ids = self._tokenizer.apply_chat_template(
            list(messages), tools=tools, tokenize=True, return_dict=False, add_generation_prompt=opens, **self._kwargs
        )
        return list(ids)

    def _rendered(self, messages: Sequence[Message], tools: Sequence[Any] | None, *, opens: bool = False) -> str:
        text: str = self._tokenizer.apply_chat_template(
            list(messages), tools=tools, tokenize=False, add_generation_prompt=opens, **self._kwargs
        )
        return text


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids that stand for no text, among them those that close a turn."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return frozenset(tokenizer.all_special_ids) | {number for number, token in added.items() if token.special}


def _between(bounds: Sequence[int], size: int) -> list[bool]:
    """True from each first to each second bound."""
    mask = [False] * size
    for start, end in zip(bounds[::2], bounds[1::2], strict=True):
        mask[start:end] = [True] * (end - start)
    return mask


def _not_a_beginning(row: int, message: int, whole: str, text: str) -> str:
    same = next((n for n, (a, b) in enumerate(zip(whole, text, strict=False)) if a != b), min(len(whole), len(text)))
    return (
        f"row {row}: the chat template renders message {message} differently within the whole conversation: "
        f"{text[same : same + 40]!r} against {whole[same : same + 40]!r} after {whole[max(same - 40, 0) : same]!r}. So what "
        "the assistant says cannot be told. Use a chat template that only appends, or one that marks it with "
        "{% generation %}, in model.custom_chat_template."
    )
