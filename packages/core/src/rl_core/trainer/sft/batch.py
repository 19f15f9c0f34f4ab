"""Conversations as the batch that engines work on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rl_dataproto import DataProto, jagged_from_rows

from rl_core.algorithms.inputs import LossTotals
from rl_core.contracts.balance import sequence_costs
from rl_core.contracts.mini_batch import PLAN_KEY, MiniBatch, MiniBatchPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sft_batch(items: Sequence[Mapping[str, Any]], max_length: int) -> DataProto:
    """One optimizer step's rows.

    A row's *response* is everything from its first learned token on, later turns of others included; the mask says which
    of it is learned.

    Args:
        items: of ``ChatDataset``.
        max_length: longest conversation in tokens.

    Returns:
        Jagged int64 ``prompts``, ``responses``, ``input_ids`` and bool ``response_mask``, with a plan of one optimizer step
        over all rows.
    """
    rows = [(item["input_ids"], item["response_mask"], int(item["response_mask"].argmax())) for item in items]
    batch = DataProto.from_dict(
        tensors={
            "prompts": _jagged([ids[:first] for ids, _, first in rows]),
            "responses": _jagged([ids[first:] for ids, _, first in rows]),
            "input_ids": _jagged([ids for ids, _, _ in rows]),
            "response_mask": _jagged([mask[first:] for _, mask, first in rows], torch.bool),
        }
    )
    totals = LossTotals(sum(int(mask.sum()) for _, mask, _ in rows), len(rows), max_length)
    whole = MiniBatch(rows=np.arange(len(rows), dtype=np.int64), totals=totals, epoch=0, index=0)
    batch.meta_info[PLAN_KEY] = MiniBatchPlan((whole,), sequence_costs([len(ids) for ids, _, _ in rows]))
    return batch


def _jagged(rows: Sequence[NDArray[Any]], dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return jagged_from_rows([torch.from_numpy(row).to(dtype) for row in rows])
