"""How evenly the tokens of a step fall on the actor's data-parallel workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rl_dataproto import lengths

from rl_core.config.batch_math import update_arithmetic
from rl_core.contracts.balance import balanced_parts, part_loads, sequence_costs

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import PPOTrainerConfig


def sharing_metrics(batch: DataProto, config: PPOTrainerConfig, workers: int) -> dict[str, float]:
    """``global_seqlen/*``: tokens of a worker when rows are dealt in their order, and (``balanced_*``) as they are shared out.

    Args:
        batch: with jagged ``input_ids``.
        config: of the run.
        workers: of the actor.
    """
    dp_size = update_arithmetic(config, "actor", workers).dp_size
    tokens = lengths(batch.batch["input_ids"]).numpy()
    in_order = part_loads(tokens, np.array_split(np.arange(len(tokens)), dp_size))
    found = {
        "min": in_order.min(),
        "max": in_order.max(),
        "minmax_diff": in_order.max() - in_order.min(),
        "mean": in_order.mean(),
    }
    if config.trainer.balance_batch:
        shared_out = part_loads(tokens, balanced_parts(sequence_costs(tokens), dp_size))
        found |= {"balanced_min": shared_out.min(), "balanced_max": shared_out.max()}
    return {f"global_seqlen/{name}": float(value) for name, value in found.items()}
