"""A batch of prompts through a generation engine that serves single requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import torch

from rl_core.contracts.sampler import FailureKind
from rl_core.errors import WeightSyncError
from rl_core.workers.rollout_check import malformation
from rl_core.workers.rollout_rows import (
    DEADLINE_KEY,
    ERROR_KEY,
    EXTRAS_KEY,
    FAILURE_KEY,
    SAMPLING_KEY,
    RolloutFailure,
    RolloutRow,
    continued,
    read_requests,
    response_columns,
)

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.contracts.rollout import RolloutEngine, RolloutOutput, RolloutRequest

__all__ = [
    "ABORT_DEADLINE_S",
    "DEADLINE_KEY",
    "ERROR_KEY",
    "EXTRAS_KEY",
    "FAILURE_KEY",
    "SAMPLING_KEY",
    "answer",
    "generate_rows",
    "without_end",
]

ABORT_DEADLINE_S = 30.0
"""Seconds that an engine may take to end a request that missed its deadline."""


async def generate_rows(engine: RolloutEngine, prompts: DataProto, version: int) -> DataProto:
    """Submit every row at once and wait for all of them.

    A row whose request fails or misses the deadline has an empty response and says why in ``rollout_error``.

    Args:
        engine: the lead of a replica.
        prompts: see ``ActorRolloutRefWorker.generate_sequences``.
        version: policy version that must answer.

    Raises:
        WeightSyncError: the engine holds other weights: a fault of the system, not of a row.
    """
    requests = read_requests(prompts, version)
    deadline_s = prompts.meta_info[DEADLINE_KEY]
    outcomes = await asyncio.gather(*(answer(engine, request, deadline_s) for request in requests))
    rows = [
        continued(RolloutRow(request_id=request.request_id), without_end(outcome), seconds=0.0)
        for request, outcome in zip(requests, outcomes, strict=True)
    ]
    prompt_ids = [torch.tensor(request.prompt_ids, dtype=torch.int64) for request in requests]
    return response_columns(prompt_ids, rows, has_log_probs=engine.has_log_probs)


async def answer(
    engine: RolloutEngine, request: RolloutRequest, deadline_s: float, *, already_s: float = 0.0
) -> RolloutOutput | RolloutFailure:
    """The engine's output, or why there is none: one request's failure is one missing row, counted by the sampler.

    Args:
        engine: the lead of a replica.
        request: what to ask.
        deadline_s: seconds that the response may take.
        already_s: how many of them earlier requests have used up.
    """
    try:
        async with asyncio.timeout(max(deadline_s - already_s, 0.0)) as deadline:
            output = await engine.generate(request)
    except WeightSyncError:
        raise
    except Exception as error:
        if isinstance(error, TimeoutError) and deadline.expired():
            return await _abandon(engine, request, deadline_s)
        return RolloutFailure(FailureKind.ERROR, f"{type(error).__name__}: {error}")
    problem = malformation(output, request, has_log_probs=engine.has_log_probs)
    return output if problem is None else RolloutFailure(FailureKind.MALFORMED, problem)


def without_end(outcome: RolloutOutput | RolloutFailure) -> RolloutOutput | RolloutFailure:
    """``outcome``, or a failure where a response has no end or no token although nobody cut it."""
    if isinstance(outcome, RolloutFailure):
        return outcome
    if outcome.finish_reason == "abort":
        text = f"the engine ended the request after {len(outcome.token_ids)} tokens (finish reason abort)"
        return RolloutFailure(FailureKind.ERROR, text)
    if not outcome.token_ids:
        text = f"the response has no tokens (finish reason {outcome.finish_reason})"
        return RolloutFailure(FailureKind.ERROR, text)
    return outcome


async def _abandon(engine: RolloutEngine, request: RolloutRequest, deadline_s: float) -> RolloutFailure:
    """Take a request that missed its deadline out of the engine, which may itself be what hangs."""
    missed = f"no response within {deadline_s} s (trainer.rollout_deadline_s)"
    try:
        async with asyncio.timeout(ABORT_DEADLINE_S):
            await engine.abort([request.request_id])
    except Exception as error:
        missed = f"{missed}; nor could it be ended: {type(error).__name__}: {error}"
    return RolloutFailure(FailureKind.LOST, missed)
