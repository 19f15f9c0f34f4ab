r"""Conversations that grow: what the engine sampled stays as it is, what the template puts between turns is added.

::

    <u> q <e> \n <a>   x <e>   \n <t> y <e> \n <a>   z <e>
    prompt             said    glue                  said        mask: 1 on what was said, 0 on the glue
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rl_core.data.assistant_mask import added_texts
from rl_core.errors import DataError

_WORDS: Final = "QzxWordsXzq"
"""Stands for the assistant's words where the template is asked what comes behind them."""

Message = Mapping[str, Any]


class Growing(NamedTuple):
    """Token ids behind the prompt, and which of them the model said."""

    ids: list[int]
    mask: list[bool]


def extend(growing: Growing, new_ids: Sequence[int], *, said: bool) -> Growing:
    """Append ids as they are.

    Args:
        growing: what there is.
        new_ids: sampled ids, or glue.
        said: whether the model sampled them.
    """
    return Growing([*growing.ids, *new_ids], [*growing.mask, *[said] * len(new_ids)])


def glue_ids(
    tokenizer: Any,
    messages: Sequence[Message],
    new_messages: Sequence[Message],
    said_ids: Sequence[int],
    *,
    tools: Sequence[Any] | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> list[int]:
    """Ids between what the assistant just said and its next turn, as the template has them.

    What was said is never encoded again: only the text that the template puts behind the assistant's words is.

    Args:
        tokenizer: needs ``apply_chat_template`` and ``encode``.
        messages: the conversation so far; the last message is what the assistant just said.
        new_messages: what follows it: answers of tools, a turn of the user.
        said_ids: ids that the engine sampled for that last message. Where they do not end with the token that closes a
            turn, because the length ran out, that token stands at the head of the glue.
        tools: schemas of tools the template shows.
        template_kwargs: passed to the template.

    Raises:
        DataError: the template does not only append, so that nothing can be said about what comes behind the words.
    """
    if not messages or messages[-1].get("role") != "assistant":
        msg = "the conversation must end with what the assistant said, for something to be added behind it"
        raise DataError(msg)
    kwargs = dict(template_kwargs or {})
    shown = [*messages[:-1], {**messages[-1], "content": _WORDS}]
    alone = _behind(_rendered(tokenizer, shown, tools, kwargs, opens=False))
    followed = _behind(_rendered(tokenizer, [*shown, *new_messages], tools, kwargs, opens=True))
    if alone is None or followed is None or not followed.startswith(alone):
        msg = (
            "the chat template renders a turn of the assistant differently once another message follows: "
            f"{alone!r} against {followed!r} behind its words. Use a template that only appends, in "
            "actor_rollout_ref.model.custom_chat_template."
        )
        raise DataError(msg)
    added = added_texts(tokenizer)
    closed = alone.rstrip()
    closing = next((text for text in added if closed.endswith(text)), "")
    text = (alone[len(closed) :] if closing else alone) + followed[len(alone) :]
    if not closing:
        return list(tokenizer.encode(text, add_special_tokens=False))
    # Encoded together with the token in front: some tokenizers put a blank in front of what begins a text.
    closing_ids = list(tokenizer.encode(closing, add_special_tokens=False))
    ids = list(tokenizer.encode(closing + text, add_special_tokens=False))
    is_closed = list(said_ids[-len(closing_ids) :]) == closing_ids
    return ids[len(closing_ids) :] if is_closed else ids


def _behind(text: str) -> str | None:
    place = text.rfind(_WORDS)
    return None if place < 0 else text[place + len(_WORDS) :]


def _rendered(
    tokenizer: Any, messages: Sequence[Message], tools: Sequence[Any] | None, kwargs: Mapping[str, Any], *, opens: bool
) -> str:
    text: str = tokenizer.apply_chat_template(
        list(messages),
        tools=None if tools is None else list(tools),
        tokenize=False,
        add_generation_prompt=opens,
        **kwargs,
    )
    return text
