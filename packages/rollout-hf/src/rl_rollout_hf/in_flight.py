"""One response that is being made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rl_core.contracts.rollout import FinishReason, RolloutOutput, RolloutRequest
from rl_engine.serving.stopping import StopStrings, ending_ids

from rl_rollout_hf.draws import Uniforms


class InFlight:
    """A request, and what has been drawn for it so far.

    Attributes:
        request: what was asked.
        future: the caller waits for it.
        tokens: response so far, what the request began with included.
        log_probs: one for each token drawn here.
        versions: policy version of each token drawn here.
        uniforms: the random numbers of its draws.
        ending: ids that end it.
        length: tokens of prompt and response so far.
        final_length: prompt and response together are never longer.
        admission: number of its last admission; a later one is larger.
    """

    __slots__ = (
        "_stop_strings",
        "admission",
        "ending",
        "final_length",
        "future",
        "length",
        "log_probs",
        "request",
        "tokens",
        "uniforms",
        "versions",
    )

    def __init__(
        self,
        request: RolloutRequest,
        future: asyncio.Future[RolloutOutput],
        *,
        eos_token_ids: Sequence[int],
        max_model_len: int,
        stop_strings: StopStrings | None,
    ) -> None:
        """Nothing has been drawn here yet."""
        self.request = request
        self.future = future
        self.tokens: list[int] = list(request.response_ids)
        self.log_probs: list[float] = []
        self.versions: list[int] = []
        self.uniforms = Uniforms(request.seed)
        self.ending = frozenset(ending_ids(request.sampling, eos_token_ids))
        self.length = len(request.prompt_ids) + len(request.response_ids)
        self.final_length = min(len(request.prompt_ids) + request.sampling.max_tokens, max_model_len)
        self.admission = -1
        self._stop_strings = stop_strings

    @property
    def is_done(self) -> bool:
        """Whether the caller has its answer, or has gone."""
        return self.future.done()

    @property
    def last_token(self) -> int:
        """What the model is given next; everything before it stands in the cache."""
        return self.tokens[-1] if self.tokens else self.request.prompt_ids[-1]

    def context(self) -> tuple[int, ...]:
        """All tokens but the last."""
        return (*self.request.prompt_ids, *self.tokens)[:-1]

    @property
    def is_held_back(self) -> bool:
        """Whether the response may not end with its next token: ``ending`` must not be drawn."""
        return len(self.tokens) + 1 < self.request.sampling.min_tokens

    def add(self, token: int, log_prob: float, version: int) -> FinishReason | None:
        """Append a token; returns why the response ends with it, or None."""
        self.length += 1
        self.tokens.append(token)
        self.log_probs.append(log_prob)
        self.versions.append(version)
        if len(self.tokens) >= self.request.sampling.min_tokens:
            if token in self.ending:
                return "stop"
            if self._stop_strings is not None and self._stop_strings.is_in(self.tokens):
                return "stop"
        return "length" if self.length >= self.final_length else None

    def finish(self, reason: FinishReason, *, with_log_probs: bool) -> None:
        """Answer with what is there."""
        if self.is_done:
            return
        self.future.set_result(
            RolloutOutput(
                request_id=self.request.request_id,
                token_ids=tuple(self.tokens[len(self.request.response_ids) :]),
                log_probs=tuple(self.log_probs) if with_log_probs else None,
                finish_reason=reason,
                versions=version_spans(self.versions),
            )
        )

    def fail(self, error: Exception) -> None:
        """Answer with an error."""
        if not self.is_done:
            self.future.set_exception(error)


def version_spans(versions: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Versions of single tokens as ``(version, count)`` spans in order."""
    spans: list[tuple[int, int]] = []
    for version in versions:
        if spans and spans[-1][0] == version:
            spans[-1] = (version, spans[-1][1] + 1)
        else:
            spans.append((version, 1))
    return tuple(spans)
