"""Preference pairs as the batch that workers share out: a row is a pair, so that its sides never part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from rl_dataproto import DataProto, jagged_from_rows

from rl_core.algorithms.inputs import LossTotals
from rl_core.contracts.mini_batch import PLAN_KEY, MiniBatch, MiniBatchPlan


def pair_batch(items: Sequence[Mapping[str, Any]], max_length: int) -> DataProto:
    """One optimizer step's pairs.

    Args:
        items: of ``PreferenceDataset``.
        max_length: longest conversation in tokens.

    Returns:
        Jagged int64 ``chosen_ids`` and ``rejected_ids`` and float32 ``margin`` [P], with a plan of one optimizer step over
        all pairs, whose ``num_sequences`` counts both sides.
    """
    batch = DataProto.from_dict(
        tensors={
            **{
                name: jagged_from_rows([torch.from_numpy(item[name]).long() for item in items])
                for name in ("chosen_ids", "rejected_ids")
            },
            "margin": torch.tensor([item["margin"] for item in items], dtype=torch.float32),
        }
    )
    num_tokens = sum(len(item["chosen_ids"]) + len(item["rejected_ids"]) for item in items)
    totals = LossTotals(num_tokens, 2 * len(items), max_length)
    whole = MiniBatch(rows=np.arange(len(items), dtype=np.int64), totals=totals, epoch=0, index=0)
    batch.meta_info[PLAN_KEY] = MiniBatchPlan((whole,))
    return batch
