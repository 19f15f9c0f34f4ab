"""Numbers of a step that the controller computes from the batch. Names are those that users of the field know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rl_dataproto import DataProto, lengths, pad_jagged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

RATIO_MEAN = "actor/ratio_mean"
RATIO_SQUARE = "actor/ratio_square_mean"
"""Mean over trained tokens of the policy ratio, and of its square."""


def batch_metrics(batch: DataProto, max_response_length: int) -> dict[str, float]:
    """Rewards, advantages and lengths.

    ``critic/score`` and ``critic/rewards`` are the per-response sums of scores and of rewards after the KL penalty; they
    bear that prefix in the field even without a critic.
    """
    mask = pad_jagged(batch.batch["response_mask"], 0).bool()
    metrics: dict[str, float] = {}
    for name, column in (("score", "token_level_scores"), ("rewards", "token_level_rewards")):
        metrics |= _spread(f"critic/{name}", pad_jagged(batch.batch[column], 0.0).sum(dim=1))
    for name in ("advantages", "returns", "values"):
        if name in batch.batch.keys():  # noqa: SIM118 - a TensorDict
            metrics |= _spread(f"critic/{name}", pad_jagged(batch.batch[name], 0.0)[mask])
    if "values" in batch.batch.keys():  # noqa: SIM118 - a TensorDict
        metrics |= _explained_variance(batch, mask)
    response = lengths(batch.batch["responses"]).double()
    metrics |= _spread("response_length", response)
    metrics["response_length/clip_ratio"] = float((response >= max_response_length).double().mean())
    metrics |= _spread("prompt_length", lengths(batch.batch["prompts"]).double())
    return metrics


def effective_sample_size(values: Mapping[str, float]) -> dict[str, float]:
    """``actor/ess`` from the first two moments of the ratio: how many equal weights the weights are worth, as a share.

    The moments add up over micro-batches and ranks, their quotient does not; so it is formed here, after merging.

    Args:
        values: the numbers of a step.

    Source: Kong 1992, "A note on importance sampling using standardized weights": (sum w)^2 / (n sum w^2).
    """
    square = values.get(RATIO_SQUARE, 0.0)
    if not square > 0 or RATIO_MEAN not in values:
        return {}
    return {"actor/ess": values[RATIO_MEAN] ** 2 / square}


def _spread(name: str, values: Tensor) -> dict[str, float]:
    if values.numel() == 0:
        return {}
    return {
        f"{name}/mean": float(values.mean()),
        f"{name}/max": float(values.max()),
        f"{name}/min": float(values.min()),
    }


def _explained_variance(batch: DataProto, mask: Tensor) -> dict[str, float]:
    """1 - Var(returns - values) / Var(returns) over trained tokens; nothing where the returns differ by rounding only."""
    returns = pad_jagged(batch.batch["returns"], 0.0)[mask].double()
    if returns.numel() == 0:
        return {}
    errors = returns - pad_jagged(batch.batch["values"], 0.0)[mask].double()
    variance = returns.var(correction=0)
    if not variance > 1e-20 + 1e-12 * returns.square().mean():
        return {}
    return {"critic/vf_explained_var": float(1 - errors.var(correction=0) / variance)}


def num_tokens(batch: DataProto) -> int:
    """Prompt and response tokens of the batch."""
    return int(lengths(batch.batch["input_ids"]).sum())


def trained_tokens(batch: DataProto) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[B] int64, tokens of each row that are trained on."""
    mask = pad_jagged(batch.batch["response_mask"], 0)
    return torch.as_tensor(mask).sum(dim=1).numpy().astype(np.int64)
