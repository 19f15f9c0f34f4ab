"""Responses on their way: rows of a batch become requests, outputs become rows, and a cut response its continuation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from rl_dataproto import DataProto, jagged_from_rows, object_array

from rl_core.contracts.rollout import FinishReason, RolloutOutput, RolloutRequest, SamplingParams
from rl_core.contracts.sampler import FailureKind

if TYPE_CHECKING:
    from torch import Tensor

SAMPLING_KEY: Final = "sampling"
"""``meta_info`` key of the ``SamplingParams`` of a batch; the object column of that name overrides it by row."""
DEADLINE_KEY: Final = "deadline_s"
"""``meta_info`` key of the seconds that a response may take."""
EXTRAS_KEY: Final = "rollout_extras"
"""Object column with each row's ``RolloutOutput.extras``; the sampler turns it into columns ``extras/<name>``."""
ERROR_KEY: Final = "rollout_error"
"""Object column: None, or why the row has no response."""
FAILURE_KEY: Final = "rollout_failure"
"""Object column: None, or the ``FailureKind`` of a row without a response."""
VERSIONS_KEY: Final = "version_spans"
"""Object column with each row's ``RolloutOutput.versions``."""
SECONDS_KEY: Final = "generation_s"
"""float64 column: seconds that the row's requests have been with the generator."""

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RolloutFailure:
    """Why there is no response.

    Attributes:
        kind: for counting.
        detail: for people.
    """

    kind: FailureKind
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutRow:
    """What there is of one response, over all requests that were made for it.

    Attributes:
        request_id: names the response.
        token_ids: int64 [T].
        log_probs: float32 [T], each of the version that drew the token; None from an engine that has none.
        versions: ``(policy version, number of tokens)`` spans in order.
        extras: per-token arrays [T, ...].
        finish_reason: ``abort`` for a response that was cut and can go on.
        failure: why it never will; None for all others.
        seconds: with the generator so far.
    """

    request_id: str
    token_ids: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    log_probs: Tensor | None = None
    versions: Spans = ()
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)
    finish_reason: FinishReason = "abort"
    failure: RolloutFailure | None = None
    seconds: float = 0.0

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will come: finished or failed."""
        return self.failure is not None or self.finish_reason != "abort"

    @property
    def oldest_version(self) -> int | None:
        """Of its tokens; None where there are none."""
        return min((version for version, count in self.versions if count), default=None)


def read_requests(prompts: DataProto, version: int) -> list[RolloutRequest]:
    """One request for each row; see ``ActorRolloutRefWorker`` for the columns."""
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


def continued(before: RolloutRow, outcome: RolloutOutput | RolloutFailure, seconds: float) -> RolloutRow:
    """``before`` with what one more request, of ``seconds``, has brought."""
    seconds += before.seconds
    if isinstance(outcome, RolloutFailure):
        return RolloutRow(request_id=before.request_id, failure=outcome, seconds=seconds)
    log_probs = None
    if outcome.log_probs is not None:
        log_probs = torch.tensor(outcome.log_probs, dtype=torch.float32)
        if before.log_probs is not None:
            log_probs = torch.cat([before.log_probs, log_probs])
    return RolloutRow(
        request_id=before.request_id,
        token_ids=torch.cat([before.token_ids, torch.tensor(outcome.token_ids, dtype=torch.int64)]),
        log_probs=log_probs,
        versions=joined_spans(before.versions, outcome.versions),
        extras=_joined_extras(before, outcome),
        finish_reason=outcome.finish_reason,
        seconds=seconds,
    )


def joined_spans(first: Spans, second: Spans) -> Spans:
    """Spans of a response and of its continuation, without empty ones; one version side by side is one span."""
    spans: list[tuple[int, int]] = []
    for version, count in (*first, *second):
        if spans and spans[-1][0] == version:
            spans[-1] = (version, spans[-1][1] + count)
        elif count:
            spans.append((version, count))
    return tuple(spans)


def pack_rows(rows: Sequence[RolloutRow], *, has_log_probs: bool) -> DataProto:
    """Rows as the columns in which they travel between sampler and generator."""
    tensors: dict[str, Any] = {
        "responses": jagged_from_rows([row.token_ids for row in rows], torch.int64),
        SECONDS_KEY: torch.tensor([row.seconds for row in rows], dtype=torch.float64),
    }
    if has_log_probs:
        tensors["rollout_log_probs"] = _log_probs(rows)
    return DataProto.from_dict(
        tensors=tensors,
        non_tensors={
            "request_id": object_array([row.request_id for row in rows]),
            "finish_reason": object_array([row.finish_reason for row in rows]),
            VERSIONS_KEY: object_array([row.versions for row in rows]),
            EXTRAS_KEY: object_array([dict(row.extras) for row in rows]),
            **_failure_columns(rows),
        },
    )


def unpack_rows(batch: DataProto) -> list[RolloutRow]:
    """The rows that ``pack_rows`` has made columns of, among others."""
    columns = batch.non_tensor_batch
    has_log_probs = "rollout_log_probs" in batch.batch.keys()  # noqa: SIM118 - a TensorDict
    log_probs = batch.batch["rollout_log_probs"].unbind() if has_log_probs else [None] * len(batch)
    return [
        RolloutRow(
            request_id=str(columns["request_id"][row]),
            token_ids=token_ids,
            log_probs=log_probs[row],
            versions=columns[VERSIONS_KEY][row],
            extras=columns[EXTRAS_KEY][row],
            finish_reason=columns["finish_reason"][row],
            failure=None
            if columns[ERROR_KEY][row] is None
            else RolloutFailure(FailureKind(columns[FAILURE_KEY][row]), columns[ERROR_KEY][row]),
            seconds=float(batch.batch[SECONDS_KEY][row]),
        )
        for row, token_ids in enumerate(batch.batch["responses"].unbind())
    ]


def response_columns(prompt_ids: Sequence[Tensor], rows: Sequence[RolloutRow], *, has_log_probs: bool) -> DataProto:
    """What ``generate_sequences`` returns. The columns depend on the engine alone, never on how its requests went.

    Args:
        prompt_ids: int64 [P] of each row.
        rows: the responses; one that failed is empty.
        has_log_probs: whether the engine has them.
    """
    tensors: dict[str, Any] = {
        "responses": jagged_from_rows([row.token_ids for row in rows], torch.int64),
        "input_ids": jagged_from_rows(
            [torch.cat([prompt, row.token_ids]) for prompt, row in zip(prompt_ids, rows, strict=True)], torch.int64
        ),
        "response_mask": jagged_from_rows(
            [torch.ones(len(row.token_ids), dtype=torch.bool) for row in rows], torch.bool
        ),
        "weight_version": torch.tensor(
            [min((version for version, _ in row.versions), default=-1) for row in rows], dtype=torch.int64
        ),
    }
    if has_log_probs:
        tensors["rollout_log_probs"] = _log_probs(rows)
    return DataProto.from_dict(
        tensors=tensors,
        non_tensors={
            "finish_reason": object_array([row.finish_reason for row in rows]),
            EXTRAS_KEY: object_array([dict(row.extras) for row in rows]),
            **_failure_columns(rows),
        },
    )


def _log_probs(rows: Sequence[RolloutRow]) -> Tensor:
    return jagged_from_rows([() if row.log_probs is None else row.log_probs for row in rows], torch.float32)


def _failure_columns(rows: Sequence[RolloutRow]) -> dict[str, np.ndarray]:
    failures = [row.failure for row in rows]
    return {
        ERROR_KEY: object_array([None if failure is None else failure.detail for failure in failures]),
        FAILURE_KEY: object_array([None if failure is None else failure.kind.value for failure in failures]),
    }


def _joined_extras(before: RolloutRow, outcome: RolloutOutput) -> dict[str, np.ndarray]:
    if not len(before.token_ids):
        return dict(outcome.extras)
    if not outcome.token_ids:
        return dict(before.extras)
    return {name: np.concatenate([before.extras[name], values]) for name, values in outcome.extras.items()}
