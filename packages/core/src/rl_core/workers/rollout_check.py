"""Whether what an engine returned is an answer. A row that is not must be counted, and never reach the trainer."""

from __future__ import annotations

from typing import get_args

import numpy as np

from rl_core.contracts.rollout import FinishReason, RolloutOutput, RolloutRequest


def malformation(output: object, request: RolloutRequest, *, has_log_probs: bool) -> str | None:
    """What is wrong with ``output`` as the answer to ``request``; None for a sound one.

    Args:
        output: what ``RolloutEngine.generate`` returned.
        request: what was asked.
        has_log_probs: whether the engine says that its outputs have them.
    """
    if not isinstance(output, RolloutOutput):
        return f"the engine returned a {type(output).__name__} instead of a RolloutOutput"
    if output.request_id != request.request_id:
        return f"the answer belongs to request {output.request_id!r}"
    if output.finish_reason not in get_args(FinishReason):
        return f"finish reason {output.finish_reason!r} is none of {', '.join(get_args(FinishReason))}"
    return _bad_tokens(output, request) or _bad_log_probs(output, has_log_probs=has_log_probs) or _bad_lengths(output)


def _bad_tokens(output: RolloutOutput, request: RolloutRequest) -> str | None:
    tokens = np.asarray(output.token_ids)
    if tokens.ndim != 1 or (tokens.size and (tokens.dtype.kind not in "iu" or int(tokens.min()) < 0)):
        return f"token_ids are no token ids: {str(output.token_ids)[:60]}"
    room = request.sampling.max_tokens - len(request.response_ids)
    if len(tokens) > room:
        return f"{len(tokens)} tokens came where max_tokens leaves room for {room}"
    return None


def _bad_log_probs(output: RolloutOutput, *, has_log_probs: bool) -> str | None:
    if output.log_probs is None:
        return "the engine has log-probs, but this answer comes without" if has_log_probs else None
    values = np.asarray(output.log_probs)
    if values.shape != (len(output.token_ids),):
        return f"{len(output.token_ids)} tokens came with {len(output.log_probs)} log-probs"
    if values.size and (values.dtype.kind not in "iuf" or not np.isfinite(values).all()):
        return "log-probs that are not finite numbers"
    return None


def _bad_lengths(output: RolloutOutput) -> str | None:
    length = len(output.token_ids)
    counted = sum(count for _, count in output.versions)
    if counted != length:
        return f"the version spans count {counted} tokens of {length}"
    for name, values in output.extras.items():
        if len(values) != length:
            return f"extras {name!r} have {len(values)} entries for {length} tokens"
    return None
