"""One response that is being made: what vLLM is asked, and what has come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_core.contracts.rollout import FinishReason, RolloutOutput, RolloutRequest
from rl_core.errors import RlError
from rl_engine.serving.stopping import StopStrings, ending_ids

from rl_rollout_vllm.draws import SEED_KEY, DrawMode


class InFlight:
    """A request, and what has been drawn for it so far.

    Attributes:
        request: what was asked.
        name: what vLLM calls it; names of answered requests may come again, these do not.
        tokens: what has come back; without the request's ``response_ids``.
        error: why it will not be answered, or None.
        is_ended: the caller has its answer, or has gone.
    """

    def __init__(
        self,
        request: RolloutRequest,
        name: str,
        *,
        eos_token_ids: Sequence[int],
        max_model_len: int,
        version: int,
        stop_strings: StopStrings | None,
    ) -> None:
        """Nothing has been drawn."""
        self.request = request
        self.name = name
        self.tokens: list[int] = []
        self.error: Exception | None = None
        self.is_ended = False
        self._log_probs: list[float] = []
        self._ending = ending_ids(request.sampling, eos_token_ids)
        self._stop_strings = stop_strings
        # (tokens that had been drawn, version from there on)
        self._changes: list[tuple[int, int]] = [(0, version)]
        drawn = len(request.response_ids)
        self.room = min(request.sampling.max_tokens, max_model_len - len(request.prompt_ids)) - drawn

    @property
    def final_length(self) -> int:
        """Tokens that prompt and response may come to."""
        return len(self.request.prompt_ids) + len(self.request.response_ids) + self.room

    def prompt(self) -> Any:
        """What it reads, in vLLM's form: the prompt, and the response so far."""
        ids = [*self.request.prompt_ids, *self.request.response_ids]
        if self.request.images:
            return {"prompt_token_ids": ids, "multi_modal_data": {"image": list(self.request.images)}}
        from vllm.inputs.engine import tokens_input  # noqa: PLC0415 - an engine runs, so vLLM is loaded

        return tokens_input(prompt_token_ids=ids)

    def params(self, *, with_log_probs: bool, draw_mode: DrawMode) -> Any:
        """Sampling parameters, in vLLM's form, for what is left of the response."""
        from vllm import SamplingParams  # noqa: PLC0415 - as above
        from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

        asked, drawn = self.request.sampling, len(self.request.response_ids)
        seed = self.request.seed if asked.temperature > 0 else None
        keyed: dict[str, Any] = {"seed": seed} if draw_mode == "position" else {}
        if draw_mode == "hooked" and seed is not None:
            keyed["extra_args"] = {SEED_KEY: seed}
        return SamplingParams(
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
            max_tokens=self.room,
            # vLLM holds an end back for so many whole tokens; here the last of them may be the end.
            min_tokens=min(max(asked.min_tokens - 1 - drawn, 0), self.room),
            stop_token_ids=list(self._ending),
            ignore_eos=True,  # the model's own are among `stop_token_ids`, as the contract counts them
            logprobs=0 if with_log_probs else None,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY if self._stop_strings is None else RequestOutputKind.DELTA,
            **keyed,
        )

    def change_version(self, drawn: int, version: int) -> None:
        """Tokens behind the first ``drawn`` are of ``version``."""
        if self._changes[-1][0] == drawn:
            self._changes.pop()
        if not self._changes or self._changes[-1][1] != version:
            self._changes.append((drawn, version))

    def add(self, output: Any) -> FinishReason | None:
        """Take what vLLM has drawn; returns why the response ends, or None.

        Raises:
            RlError: vLLM ended the request for an error.
        """
        (completion,) = output.outputs
        values = log_probs_of(completion.logprobs, completion.token_ids)
        for place, token in enumerate(completion.token_ids):
            self.tokens.append(int(token))
            if values is not None:
                self._log_probs.append(values[place])
            if self._stop_string_stands():
                return "stop"
        if not output.finished:
            return None
        if completion.finish_reason in ("stop", "length", "abort"):
            reason: FinishReason = completion.finish_reason
            return reason
        msg = (
            f"vLLM ended request {self.request.request_id!r} after {len(self.tokens)} tokens (finish reason "
            f"{completion.finish_reason!r})"
        )
        raise RlError(msg)

    def _stop_string_stands(self) -> bool:
        if self._stop_strings is None:
            return False
        whole = [*self.request.response_ids, *self.tokens]
        return len(whole) >= self.request.sampling.min_tokens and self._stop_strings.is_in(whole)

    def finish(self, reason: FinishReason, *, with_log_probs: bool, raw: bool) -> RolloutOutput:
        """The answer; ``raw`` log-probs are those of the unchanged logits."""
        values: tuple[float, ...] | None = None
        if with_log_probs:
            # At temperature 0 a token is drawn from one point; vLLM gives the log-probs at temperature 1.
            is_certain = self.request.sampling.temperature == 0 and not raw
            values = (0.0,) * len(self.tokens) if is_certain else tuple(self._log_probs)
        return RolloutOutput(
            request_id=self.request.request_id,
            token_ids=tuple(self.tokens),
            log_probs=values,
            finish_reason=reason,
            versions=self._spans(),
        )

    def _spans(self) -> tuple[tuple[int, int], ...]:
        total = len(self.tokens)
        starts = [min(start, total) for start, _ in self._changes]
        ends = [*starts[1:], total]
        spans = zip(self._changes, starts, ends, strict=True)
        return tuple((version, end - start) for (_, version), start, end in spans if end > start)


def log_probs_of(logprobs: Any, token_ids: Sequence[int]) -> list[float] | None:
    """The log-probs of the drawn tokens, from either of vLLM's forms."""
    if logprobs is None:
        return None
    flat = getattr(logprobs, "logprobs", None)
    if flat is not None and len(flat) == len(token_ids):
        return [float(value) for value in flat]
    return [float(at[token].logprob) for at, token in zip(logprobs, token_ids, strict=True)]
