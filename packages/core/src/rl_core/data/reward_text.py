"""What a reward model reads of a response: the policy's own tokens, or the conversation in its own words.

::

    same vocabulary, same template     prompt ids + response ids + what the template writes behind a turn that ended
    otherwise, prompt of messages      its own template on the prompt's messages and the response as the assistant's
    otherwise, prompt of text          its own tokens of prompt and response

The first keeps every token as it was sampled. The others decode with the policy's tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rl_core.data.text_ids import encode_text
from rl_core.errors import ConfigError, DataError

_ANSWER: Final = "ANSWER"


class JudgedIds(NamedTuple):
    """A conversation as a reward model reads it."""

    ids: list[int]
    is_cut: bool
    """Whether its beginning is left out, because it is longer than the limit."""


class RewardText:
    """Turns prompts and responses of the policy into the tokens that a reward model reads.

    Attributes:
        is_same: whether the two tokenizers write conversations alike, so that the policy's tokens are taken as they are.
    """

    def __init__(self, policy: Any, scorer: Any, max_length: int | None = None) -> None:
        """Compare the tokenizers.

        Args:
            policy: tokenizer that the responses are written with.
            scorer: tokenizer of the reward model.
            max_length: longest conversation; the beginning of a longer one is left out. None sets no limit.
        """
        self._policy = policy
        self._scorer = scorer
        self._max_length = max_length
        vocabulary = same_vocabulary(policy, scorer)
        template = getattr(scorer, "chat_template", None)
        # A scorer without a template of its own reads what the policy's template wrote, if it knows the tokens.
        self.is_same = vocabulary and template in (None, getattr(policy, "chat_template", None))
        self._tail = template_tail(scorer) if template is not None else []

    def read(self, prompt: Any, prompt_ids: Sequence[int], response_ids: Sequence[int]) -> JudgedIds:
        """The conversation of one response.

        Args:
            prompt: messages, or text; None where the batch does not tell.
            prompt_ids: the policy's tokens of it.
            response_ids: the policy's tokens of the response.

        Raises:
            DataError: the tokens cannot be translated, because the prompt is not known, or for a prompt of messages the
                reward model has no chat template.
        """
        if self.is_same:
            ids = [*prompt_ids, *response_ids]
            if not isinstance(prompt, str):
                ids += self._rest_of_turn(ids)
        else:
            ids = self._translated(prompt, response_ids)
        limit = self._max_length
        if limit is None or len(ids) <= limit:
            return JudgedIds(ids, is_cut=False)
        return JudgedIds(ids[-limit:], is_cut=True)

    def _rest_of_turn(self, ids: Sequence[int]) -> list[int]:
        """What the template writes behind the end of the assistant's turn; nothing for a response that did not end."""
        for length in range(len(self._tail), 0, -1):
            if list(ids[-length:]) == self._tail[:length]:
                return self._tail[length:]
        return []

    def _translated(self, prompt: Any, response_ids: Sequence[int]) -> list[int]:
        answer = self._policy.decode(_without_end(self._policy, response_ids), skip_special_tokens=False)
        if isinstance(prompt, str):
            ids = encode_text(self._scorer, prompt) + list(self._scorer.encode(answer, add_special_tokens=False))
            end = self._scorer.eos_token_id
            return ids if end is None else [*ids, end]
        if prompt is None:
            msg = (
                "the reward model's tokenizer is not the policy's, so the conversation must be written anew, but the batch has "
                "no raw_prompt. Keep data.return_raw_chat on, or take a reward model with the policy's tokenizer and template."
            )
            raise DataError(msg)
        if getattr(self._scorer, "chat_template", None) is None:
            msg = (
                "the reward model has another tokenizer than the policy and no chat template, so conversations cannot be "
                "written for it. Set reward_model.model.tokenizer_path to a folder whose tokenizer has one."
            )
            raise DataError(msg)
        messages = [*map(dict, prompt), {"role": "assistant", "content": answer}]
        return list(self._scorer.apply_chat_template(messages, tokenize=True, return_dict=False))


def same_vocabulary(one: Any, other: Any) -> bool:
    """Whether two tokenizers give every id the same meaning."""
    if one is other:
        return True
    if type(one) is not type(other) and not (hasattr(one, "get_vocab") and hasattr(other, "get_vocab")):
        return False
    if not hasattr(one, "get_vocab"):
        return len(one) == len(other)
    first: Mapping[str, int] = one.get_vocab()
    return first == other.get_vocab()


def template_tail(tokenizer: Any) -> list[int]:
    """Tokens that the chat template writes behind what the assistant says, at the end of a conversation.

    Raises:
        ConfigError: the template does not take a question and an answer.
    """
    messages = [{"role": "user", "content": "QUESTION"}, {"role": "assistant", "content": _ANSWER}]
    try:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False)
    except (ValueError, TypeError) as error:
        msg = (
            f"the chat template of the reward model does not take a user's question and an assistant's answer: {error}"
        )
        raise ConfigError(msg) from error
    return list(tokenizer.encode(text.rpartition(_ANSWER)[2], add_special_tokens=False)) if _ANSWER in text else []


def _without_end(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """Without the special tokens at the end: they end the policy's turn, and the scorer's template ends it in its own way."""
    special, kept = set(tokenizer.all_special_ids), list(ids)
    while kept and kept[-1] in special:
        kept.pop()
    return kept
