"""A batch of prompts through a generation engine that serves single requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import torch
from rl_dataproto import DataProto, jagged_from_rows, object_array

from rl_core.contracts.rollout import RolloutEngine, RolloutOutput, RolloutRequest, SamplingParams
from rl_core.errors import WeightSyncError

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLING_KEY = "sampling"
"""``meta_info`` key of the ``SamplingParams`` of a batch; the object column of that name overrides it by row."""
DEADLINE_KEY = "deadline_s"
"""``meta_info`` key of the seconds that a response may take."""
EXTRAS_KEY = "rollout_extras"
"""Object column with each row's ``RolloutOutput.extras``; the sampler turns it into columns ``extras/<name>``."""
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
    requests = _requests(prompts, version)
    deadline_s = prompts.meta_info[DEADLINE_KEY]
    results = await asyncio.gather(*(_answer(engine, request, deadline_s) for request in requests))
    return _to_batch(requests, results, has_log_probs=engine.has_log_probs)


async def _answer(engine: RolloutEngine, request: RolloutRequest, deadline_s: float) -> RolloutOutput | str:
    """The finished output, or why there is none: one request's failure is one missing row, counted by the sampler."""
    try:
        async with asyncio.timeout(deadline_s) as deadline:
            output = await engine.generate(request)
    except WeightSyncError:
        raise
    except Exception as error:
        if isinstance(error, TimeoutError) and deadline.expired():
            return await _abandon(engine, request, deadline_s)
        return f"{type(error).__name__}: {error}"
    if output.finish_reason == "abort":
        return f"the engine ended the request after {len(output.token_ids)} tokens (finish reason abort)"
    return output if output.token_ids else f"the response has no tokens (finish reason {output.finish_reason})"


async def _abandon(engine: RolloutEngine, request: RolloutRequest, deadline_s: float) -> str:
    """Take a request that missed its deadline out of the engine, which may itself be what hangs."""
    missed = f"no response within {deadline_s} s (trainer.rollout_deadline_s)"
    try:
        async with asyncio.timeout(ABORT_DEADLINE_S):
            await engine.abort([request.request_id])
    except Exception as error:
        return f"{missed}; nor could it be ended: {type(error).__name__}: {error}"
    return missed


def _requests(prompts: DataProto, version: int) -> list[RolloutRequest]:
    common: SamplingParams = prompts.meta_info[SAMPLING_KEY]
    by_row = prompts.non_tensor_batch.get(SAMPLING_KEY)
    images = prompts.non_tensor_batch.get("images")
    return [
        RolloutRequest(
            request_id=str(prompts.non_tensor_batch["request_id"][row]),
            prompt_ids=tuple(ids.tolist()),
            sampling=common if by_row is None or by_row[row] is None else by_row[row],
            seed=int(prompts.batch["seed"][row]),
            required_version=version,
            images=() if images is None else tuple(images[row] or ()),
        )
        for row, ids in enumerate(prompts.batch["prompts"].unbind())
    ]


def _to_batch(
    requests: Sequence[RolloutRequest], results: Sequence[RolloutOutput | str], *, has_log_probs: bool
) -> DataProto:
    """Rows in request order. The columns depend on the engine alone, never on how its requests went."""
    missing = RolloutOutput(request_id="", token_ids=(), log_probs=(), finish_reason="abort", versions=())
    outputs = [missing if isinstance(result, str) else result for result in results]
    responses = [torch.tensor(output.token_ids, dtype=torch.int64) for output in outputs]
    inputs = [
        torch.cat([torch.tensor(request.prompt_ids, dtype=torch.int64), response])
        for request, response in zip(requests, responses, strict=True)
    ]
    masks = [torch.ones(len(response), dtype=torch.bool) for response in responses]
    tensors: dict[str, Any] = {
        "responses": jagged_from_rows(responses, torch.int64),
        "input_ids": jagged_from_rows(inputs, torch.int64),
        "response_mask": jagged_from_rows(masks, torch.bool),
        "weight_version": torch.tensor(
            [min((version for version, _ in output.versions), default=-1) for output in outputs], dtype=torch.int64
        ),
    }
    if has_log_probs:
        tensors["rollout_log_probs"] = jagged_from_rows([output.log_probs or () for output in outputs], torch.float32)
    return DataProto.from_dict(
        tensors=tensors,
        non_tensors={
            "finish_reason": object_array([output.finish_reason for output in outputs]),
            "rollout_error": object_array([result if isinstance(result, str) else None for result in results]),
            EXTRAS_KEY: object_array([dict(output.extras) for output in outputs]),
        },
    )
