"""When a response ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rl_core.contracts.rollout import FinishReason, RolloutRequest, SamplingParams
from rl_core.errors import RlError

from rl_testing.fakes.rollout_config import FakeRolloutConfig
from rl_testing.fakes.tokenizer import TinyTokenizer

_MAX_MODEL_LEN = 4096
"""Of a model that says nothing about it."""


@dataclass(frozen=True, slots=True)
class StopRules:
    """What an engine knows about endings, besides the request's own wishes.

    Attributes:
        eos_token_ids: the model's end-of-sequence tokens.
        vocab_size: ids that exist.
        max_model_len: longest prompt and response together.
        decode: text of token ids, for stop strings.
    """

    eos_token_ids: tuple[int, ...]
    vocab_size: int
    max_model_len: int
    decode: Callable[[Iterable[int]], str]

    def check(self, request: RolloutRequest) -> None:
        """Refuse a request that cannot be served.

        Raises:
            RlError: says what is wrong with it.
        """
        given = (*request.prompt_ids, *request.response_ids)
        length, strangers = len(request.prompt_ids), sorted(set(given) - set(range(self.vocab_size)))
        problem = None
        if length == 0:
            problem = "an empty prompt; give at least one token"
        elif length >= self.max_model_len:
            problem = (
                f"a prompt of {length} tokens; with rollout.max_model_len {self.max_model_len} it must be shorter "
                "to leave room for a response"
            )
        elif strangers:
            problem = f"token ids {strangers}; the model has ids 0 to {self.vocab_size - 1}"
        elif request.sampling.max_tokens < 1:
            problem = f"max_tokens {request.sampling.max_tokens}; ask for at least one token"
        elif len(request.response_ids) >= request.sampling.max_tokens or len(given) >= self.max_model_len:
            problem = (
                f"{len(request.response_ids)} response tokens already; max_tokens {request.sampling.max_tokens} and "
                f"rollout.max_model_len {self.max_model_len} leave no token to draw"
            )
        if problem is not None:
            msg = f"request {request.request_id!r} has {problem}"
            raise RlError(msg)

    def forbidden(self, sampling: SamplingParams, position: int) -> tuple[int, ...]:
        """Ids that may not be drawn at ``position`` of the response, because they would end it too early."""
        if sampling.ignore_eos or position + 1 >= sampling.min_tokens:
            return ()
        return tuple(token for token in self._ending_ids(sampling) if 0 <= token < self.vocab_size)

    def finish(self, request: RolloutRequest, tokens: Sequence[int]) -> FinishReason | None:
        """Why the response ends with its last token; None when it goes on."""
        sampling = request.sampling
        if not sampling.ignore_eos and len(tokens) >= sampling.min_tokens:
            if tokens[-1] in self._ending_ids(sampling):
                return "stop"
            if sampling.stop and any(text in self.decode(tokens) for text in sampling.stop):
                return "stop"
        is_full = len(request.prompt_ids) + len(tokens) >= self.max_model_len
        return "length" if is_full or len(tokens) >= sampling.max_tokens else None

    def _ending_ids(self, sampling: SamplingParams) -> tuple[int, ...]:
        return (*self.eos_token_ids, *sampling.stop_token_ids)


def stop_rules(rollout: Any, vocab_size: int) -> StopRules:
    """The rules of a fake engine under the ``rollout`` section."""
    from_data = (rollout.prompt_length or 0) + (rollout.response_length or 0)
    return StopRules(
        eos_token_ids=tuple(FakeRolloutConfig.below(rollout).eos_token_ids),
        vocab_size=vocab_size,
        max_model_len=rollout.max_model_len or from_data or _MAX_MODEL_LEN,
        decode=TinyTokenizer().decode,
    )
