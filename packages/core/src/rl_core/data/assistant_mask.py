r"""Token ids of a conversation, and which of them the assistant says.

::

    <|im_start|> user \n 2 + 2 ? <|im_end|> \n <|im_start|> assistant \n 4 <|im_end|> \n
         .        .    .  ...         .      .        .          .     .  x     x      .      x is learned

A template that marks the assistant's words itself (``{% generation %}``) is believed. Otherwise the rendered text is cut
where a turn of the assistant opens and where it ends; both must be beginnings of the whole. What closes a turn is learned,
also where a mark stops short of it; what a template puts between turns is not: the generator never says that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rl_core.data.span_tokens import Encoded, Span, encode_spans
from rl_core.errors import DataError

_GENERATION: Final = re.compile(r"\{%-?\s*generation\s*-?%\}")
_SENTINEL: Final = "QzxWordsXzq"
"""Stands for the assistant's words where the template is asked what it puts around them."""

Message = Mapping[str, Any]


class _Frame(NamedTuple):
    """What a template puts around the assistant's words."""

    closing: str
    """Text behind the words that ends the turn, without white space behind it; empty where there is none."""
    learned_header: str
    """What opens the turn, where the template does not show it to a generator; empty where it does."""


class ConversationEncoder:
    """Renders conversations with a tokenizer's chat template.

    Attributes:
        num_unclosed: conversations with a turn of the assistant behind which no token was found that ends it.
    """

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
        self._added = added_texts(tokenizer)
        self._frame: _Frame | None = None
        self.num_unclosed = 0

    def encode(self, row: int, messages: Sequence[Message], tools: Sequence[Any] | None) -> Encoded:
        """Ids of the whole conversation, as ``apply_chat_template(tokenize=True)`` gives them, and the mask.

        Where a token would stand across the edge of a turn, its two sides get ids of their own instead.

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
            text, turns = self._marked(messages, tools) if self._marks_itself else self._cut(row, messages, tools)
            spans = self._closed(messages, tools, text, turns)
        except DataError:
            raise
        except Exception as error:  # templates are code of the model's: they raise what they like
            msg = f"row {row}: the chat template cannot render the conversation: {type(error).__name__}: {error}"
            raise DataError(msg) from error
        encoded = encode_spans(self._tokenizer, text, spans)
        if encoded is None:
            msg = (
                f"row {row}: the tokens of its turns do not add up to the conversation, so what the assistant says cannot "
                "be told. Use a chat template that opens and closes turns with special tokens, in "
                "model.custom_chat_template."
            )
            raise DataError(msg)
        return encoded

    def notes(self) -> list[str]:
        """What the template does to training that nobody may expect."""
        lines = []
        if self._frame and self._frame.learned_header:
            lines.append(
                "the chat template ignores add_generation_prompt, so what opens a turn of the assistant "
                f"({self._frame.learned_header!r}) is learned with it."
            )
        if self.num_unclosed:
            lines.append(
                f"{self.num_unclosed} conversations have an assistant turn that the chat template closes with no token, so "
                "the model does not learn where to stop."
            )
        return lines

    def _marked(self, messages: Sequence[Message], tools: Sequence[Any] | None) -> tuple[str, list[Span]]:
        """The text and the spans that the template marks, which the tokenizer itself rounds to whole tokens."""
        from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415 - heavy

        texts, marks = render_jinja_template(
            conversations=[list(messages)],
            tools=None if tools is None else list(tools),
            chat_template=self._tokenizer.get_chat_template(None, tools),
            return_assistant_tokens_mask=True,
            **(dict(self._tokenizer.special_tokens_map) | self._kwargs),
        )
        spans: list[Span] = []
        for start, end in marks[0]:
            # What two marks that touch hold is said at one go: the first ends no turn.
            spans.append((spans.pop()[0] if spans and spans[-1][1] == start else start, end))
        return texts[0], spans

    def _cut(self, row: int, messages: Sequence[Message], tools: Sequence[Any] | None) -> tuple[str, list[Span]]:
        """The text and its turns: what is rendered up to a turn's opening, and up to its end, are beginnings of it."""
        whole = self._rendered(messages, tools)
        turns: list[Span] = []
        for number in _of_assistant(messages):
            opening = self._rendered(messages[:number], tools, opens=True)
            ending = self._rendered(messages[: number + 1], tools)
            for text in (opening, ending):
                if not whole.startswith(text):
                    raise DataError(_not_a_beginning(row, number, whole, text))
            turns.append((len(opening), len(ending)))
        return whole, turns

    def _closed(
        self, messages: Sequence[Message], tools: Sequence[Any] | None, text: str, turns: Sequence[Span]
    ) -> list[Span]:
        """The spans, each up to the end of what closes the turn; counts conversations where something does not."""
        asked = _of_assistant(messages)
        if not asked:
            return list(turns)
        if self._frame is None:
            self._frame = self._look_around(messages, asked[0], tools)
        spans: list[Span] = []
        closed = 0
        for (start, end), limit in zip(turns, [*(begin for begin, _ in turns[1:]), len(text)], strict=True):
            behind = self._behind(text, start, end)
            closed += behind is not None
            spans.append((start, end if behind is None else min(behind, limit)))
        self.num_unclosed += closed < len(asked)
        return [(start, end) for start, end in spans if start < end]

    def _behind(self, text: str, start: int, end: int) -> int | None:
        """Where the closing of a turn ends: within the span but for white space, or right behind it; None without one."""
        closing = self._frame.closing if self._frame else ""
        said = text[start:end].rstrip()
        if closing and said.endswith(closing):
            return start + len(said)
        if closing and self._marks_itself and text.startswith(closing, end):
            return end + len(closing)
        if said.endswith(self._added):
            return start + len(said)
        if not closing or not self._marks_itself:
            return None
        # Some turns close otherwise, for example those that call tools. What opens a turn has a role or words behind it.
        token = next((token for token in self._added if text.startswith(token, end)), None)
        if token is None:
            return None
        rest = text[end + len(token) :].lstrip()
        return end + len(token) if not rest or rest.startswith(self._added) else None

    def _look_around(self, messages: Sequence[Message], number: int, tools: Sequence[Any] | None) -> _Frame:
        """Render one turn with words that are known, as the last of its conversation: all behind them closes it."""
        before = messages[:number]
        words = messages[number].get("content")
        known = [{"type": "text", "text": _SENTINEL}] if isinstance(words, list | tuple) else _SENTINEL
        shown = self._rendered([*before, {"role": "assistant", "content": known}], tools)
        place = shown.rfind(_SENTINEL)
        if place < 0:
            return _Frame("", "")
        closing = shown[place + len(_SENTINEL) :].rstrip()
        header = ""
        if not self._marks_itself:
            opening = self._rendered(before, tools, opens=True)
            # Without a header the words follow a turn of the user's that itself tells that the assistant is next.
            if opening == self._rendered(before, tools) and shown.startswith(opening):
                header = shown[len(opening) : place].strip()
        return _Frame(closing, header)

    def _rendered(self, messages: Sequence[Message], tools: Sequence[Any] | None, *, opens: bool = False) -> str:
        text: str = self._tokenizer.apply_chat_template(
            list(messages), tools=tools, tokenize=False, add_generation_prompt=opens, **self._kwargs
        )
        return text


def _of_assistant(messages: Sequence[Message]) -> list[int]:
    return [number for number, message in enumerate(messages) if message["role"] == "assistant"]


def added_texts(tokenizer: Any) -> tuple[str, ...]:
    """Texts that are one token each, whether flagged special or not; longest first."""
    added = {token.content for token in getattr(tokenizer, "added_tokens_decoder", {}).values()}
    special = {tokenizer.decode([number], skip_special_tokens=False) for number in tokenizer.all_special_ids}
    return tuple(sorted((text for text in added | special if text.strip()), key=len, reverse=True))


def _not_a_beginning(row: int, message: int, whole: str, text: str) -> str:
    same = next((n for n, (a, b) in enumerate(zip(whole, text, strict=False)) if a != b), min(len(whole), len(text)))
    return (
        f"row {row}: the chat template renders message {message} differently within the whole conversation: "
        f"{text[same : same + 40]!r} against {whole[same : same + 40]!r} after {whole[max(same - 40, 0) : same]!r}. So what "
        "the assistant says cannot be told. Use a chat template that only appends, or one that marks it with "
        "{% generation %}, in model.custom_chat_template."
    )
