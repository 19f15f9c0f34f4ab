"""The advantage line of the loop: KL penalty in the reward, then the chosen estimator, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from rl_dataproto import DataProto, is_jagged, lengths, pad_jagged, to_jagged

from rl_core.algorithms.inputs import AdvantageInputs
from rl_core.algorithms.kl import apply_kl_to_rewards
from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.pf_ppo import resampled_rows
from rl_core.algorithms.rewards import sequence_rewards
from rl_core.errors import DataError, ShapeError
from rl_core.metrics import Metric
from rl_core.trainer.ppo.reward import UNTRAINED_KEY
from rl_core.workers.losses import kl_estimator

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.kl_controller import KLController
    from rl_core.config import AlgorithmConfig
    from rl_core.plugins import Registry

AdvantageFunction = Callable[[AdvantageInputs, Any], "tuple[Tensor, Tensor]"]


class BatchColumns(Mapping[str, Any]):
    """A batch's columns by name, in the form that estimators take; a column is padded when it is asked for.

    Jagged columns come as [B, T] with 0.0 in the padding, dense ones as they are, object columns as numpy arrays.
    """

    def __init__(self, batch: DataProto, width: int) -> None:
        """Look at ``batch``; T is ``width``, at least the longest row."""
        self._batch = batch
        self._width = width

    def __getitem__(self, name: str) -> Any:
        """The column.

        Raises:
            DataError: there is none; names those there are.
        """
        if name in self._batch.non_tensor_batch:
            return self._batch.non_tensor_batch[name]
        if name in self._tensors:
            column = self._batch.batch[name]
            return pad_jagged(column, 0.0, length=self._width) if is_jagged(column) else column
        msg = f"the advantage estimator reads column {name!r}, which this batch has not; it has {', '.join(sorted(self))}."
        raise DataError(msg)

    def __contains__(self, name: object) -> bool:
        """Whether the batch has the column."""
        return name in self._batch.non_tensor_batch or name in self._tensors

    def get(self, name: str, default: Any = None) -> Any:
        """The column, or ``default`` where the batch has none."""
        return self[name] if name in self else default  # noqa: SIM401 - this is get

    def __iter__(self) -> Iterator[str]:
        """Names of the columns."""
        yield from self._tensors
        yield from self._batch.non_tensor_batch

    def __len__(self) -> int:
        """Number of columns."""
        return len(self._tensors) + len(self._batch.non_tensor_batch)

    @property
    def _tensors(self) -> list[str]:
        return list(self._batch.batch.keys())


def compute_advantage(
    batch: DataProto, algorithm: AlgorithmConfig, kl_controller: KLController | None, registry: Registry
) -> tuple[DataProto, dict[str, Metric]]:
    """Add ``token_level_rewards``, ``advantages`` and ``returns`` (jagged float32 or float64).

    Rejected tokens: a row whose trained tokens are all rejected is as good as not there while advantages are estimated,
    so it shifts no baseline. A row with some rejected tokens keeps its place in the group and its whole reward, also
    where the token that bears it is rejected. Afterwards ``response_mask`` is without the rejected tokens, so that no
    loss learns from them. The same holds for every token of an ``untrained`` row, whose reward counts in its group.

    Args:
        batch: jagged ``response_mask``, ``token_level_scores``; ``values``, ``old_log_probs`` and ``ref_log_prob`` where
            the estimator or the KL penalty needs them; object ``uid``; jagged bool ``rejected``, where rollouts are
            corrected; bool ``untrained`` [B], where rewards have it; whatever else the estimator reads.
        algorithm: the ``algorithm`` section.
        kl_controller: weighs the KL penalty in the reward and adapts to what is met; None without that penalty.
        registry: finds the estimator.

    Raises:
        DataError: the estimator reads a column that the batch has not.
        ShapeError: it returns something else than advantages and returns, both [B, T].
    """
    full_mask = pad_jagged(batch.batch["response_mask"], 0).bool()
    columns = BatchColumns(batch, full_mask.shape[1])
    rejected = columns["rejected"].bool() if "rejected" in columns else torch.zeros_like(full_mask)
    kept_mask = full_mask & ~rejected
    mask = full_mask & kept_mask.any(dim=1, keepdim=True)
    if UNTRAINED_KEY in columns:
        kept_mask = kept_mask & ~columns[UNTRAINED_KEY].unsqueeze(1)
    rewards = columns["token_level_scores"]
    metrics: dict[str, Metric] = {}
    if kl_controller is not None:
        coefficient = kl_controller.value
        estimator = kl_estimator(algorithm.kl_penalty, registry)
        rewards, mean_kl = apply_kl_to_rewards(
            rewards, columns["old_log_probs"], columns["ref_log_prob"], full_mask, coefficient, estimator
        )
        kl_controller.update(float(mean_kl), len(batch))
        metrics["actor/reward_kl_penalty"] = Metric(float(mean_kl), "last", keep_nan=True)
        metrics["actor/reward_kl_penalty_coeff"] = Metric(coefficient, "last")
    advantage = cast("AdvantageFunction", registry.load("advantage", algorithm.adv_estimator))
    inputs = AdvantageInputs(
        token_level_rewards=rewards,
        response_mask=mask,
        uid=columns.get("uid"),
        values=columns.get("values"),
        extras=columns,
    )
    advantages, returns = _both(advantage(inputs, algorithm), mask, algorithm.adv_estimator)
    computed = {
        "token_level_rewards": rewards,
        "advantages": fill_masked(advantages, kept_mask),
        "returns": fill_masked(returns, kept_mask),
    }
    widths = lengths(batch.batch["response_mask"])
    added = DataProto.from_dict(tensors={name: to_jagged(column, widths) for name, column in computed.items()})
    result = batch.select().union(added)
    if "rejected" in columns or UNTRAINED_KEY in columns:
        result.batch["response_mask"] = to_jagged(kept_mask, widths)
    return result, metrics


def _both(found: Any, mask: Tensor, estimator: str) -> tuple[Tensor, Tensor]:
    """Advantages and returns, if that is what the estimator has returned."""
    if isinstance(found, tuple) and [getattr(part, "shape", None) for part in found] == [mask.shape] * 2:
        return found[0], found[1]
    parts = found if isinstance(found, tuple) else (found,)
    what = ", ".join(f"{type(part).__name__} {tuple(getattr(part, 'shape', ()))}" for part in parts)
    msg = (
        f"advantage estimator {estimator!r} must return two tensors, advantages and returns, both of the shape of "
        f"response_mask {tuple(mask.shape)}; it returned {what}."
    )
    raise ShapeError(msg)


def resample(batch: DataProto, algorithm: AlgorithmConfig, seed: Sequence[int]) -> tuple[DataProto, dict[str, Metric]]:
    """The rows to train on: drawn again by their rewards with ``algorithm.use_pf_ppo``, otherwise the batch itself.

    Runs after the advantages, so every estimator may stand before it: no baseline sees a row twice or misses one. The
    numbers of a step are those of the batch before it.

    Args:
        batch: from ``compute_advantage``.
        algorithm: the ``algorithm`` section.
        seed: what the draw depends on: (trainer seed, step) makes a resumed run draw the same rows.

    Returns:
        As many rows as before, and ``pf_ppo/distinct_rows``, the share of rows that were drawn at least once.
    """
    if not algorithm.use_pf_ppo:
        return batch, {}
    mask = pad_jagged(batch.batch["response_mask"], 0).bool()
    # The score before the KL penalty, and whole: its token may be among those that are rejected.
    scores = pad_jagged(batch.batch["token_level_scores"], 0.0, length=mask.shape[1])
    rewards, has_reward = sequence_rewards(scores, torch.ones_like(mask))
    usable = has_reward & mask.any(dim=1)
    rows = resampled_rows(rewards, usable, batch.non_tensor_batch["uid"], algorithm.pf_ppo, seed)
    distinct = len(np.unique(rows)) / len(rows) if len(rows) else 1.0
    return batch.select_idxs(rows), {"pf_ppo/distinct_rows": Metric(distinct, "last")}
