"""A batch of prompts through a generation engine that serves single requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rl_dataproto import DataProto, jagged_from_rows

from rl_core.contracts.rollout import RolloutEngine, RolloutOutput, RolloutRequest, SamplingParams
from rl_core.errors import WeightSyncError

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLING_KEY = "sampling"
"""``meta_info`` key of the ``SamplingParams`` of a batch; the object column of that name overrides it by row."""
DEADLINE_KEY = "deadline_s"
"""``meta_info`` key of the seconds that a response may take."""


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
    return _to_batch(requests, results)


async def _answer(engine: RolloutEngine, request: RolloutRequest, deadline_s: float) -> RolloutOutput | str:
    try:
        output = await asyncio.wait_for(engine.generate(request), deadline_s)
        return output if output.token_ids else f"the response has no tokens (finish reason {output.finish_reason})"
    except TimeoutError:
        await engine.abort([request.request_id])
        return f"no response within {deadline_s} s (trainer.rollout_deadline_s)"
    except WeightSyncError:
        raise
    except Exception as error:  # one request's failure is one missing row, counted and limited by the sampler
        return f"{type(error).__name__}: {error}"


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


def _to_batch(requests: Sequence[RolloutRequest], results: Sequence[RolloutOutput | str]) -> DataProto:
    outputs = [
        RolloutOutput(request_id=request.request_id, token_ids=(), log_probs=(), finish_reason="abort", versions=())
        if isinstance(result, str)
        else result
        for request, result in zip(requests, results, strict=True)
    ]
    responses = [torch.tensor(output.token_ids, dtype=torch.int64) for output in outputs]
    inputs = [
        torch.cat([torch.tensor(request.prompt_ids, dtype=torch.int64), response])
        for request, response in zip(requests, responses, strict=True)
    ]
    tensors: dict[str, Any] = {
        "responses": jagged_from_rows(responses),
        "input_ids": jagged_from_rows(inputs),
        "response_mask": jagged_from_rows([torch.ones(len(response), dtype=torch.bool) for response in responses]),
        "weight_version": torch.tensor(
            [min((version for version, _ in output.versions), default=-1) for output in outputs], dtype=torch.int64
        ),
    }
    if all(output.log_probs is not None for output in outputs):
        tensors["rollout_log_probs"] = jagged_from_rows(
            [torch.tensor(output.log_probs, dtype=torch.float32) for output in outputs]
        )
    return DataProto.from_dict(
        tensors=tensors,
        non_tensors={
            "finish_reason": np.array([output.finish_reason for output in outputs], dtype=object),
            "rollout_error": np.array(
                [result if isinstance(result, str) else None for result in results], dtype=object
            ),
        },
    )
