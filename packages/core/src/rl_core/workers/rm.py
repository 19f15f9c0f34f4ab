"""The worker that trains a reward model on pairs: one training engine, nothing that generates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from rl_dataproto import DataProto, jagged_from_rows
from rl_dataproto.jagged import Jagged

from rl_core.algorithms.preference_loss import bradley_terry
from rl_core.contracts.engine import ROWS_TOGETHER_KEY
from rl_core.contracts.mini_batch import PLAN_KEY, MiniBatch, MiniBatchPlan
from rl_core.contracts.weights import fingerprint
from rl_core.metrics import Metric, merge_metrics
from rl_core.plugins import get_registry
from rl_core.single_controller.base import Dispatch, WorkerContext, register
from rl_core.single_controller.base.mesh import make_mini_batch_dispatch_fn
from rl_core.workers.build import build_rm
from rl_core.workers.engine_worker import TrainedEngineWorker
from rl_core.workers.phases import Phase
from rl_core.workers.update import run_updates

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import LossTotals
    from rl_core.config import RMTrainerConfig
    from rl_core.contracts.engine import TokenOutputs

MESH = "rm"


class PairLoss:
    """Bradley-Terry loss of the pairs of one micro-batch, whose rows are better and worse answers in turns.

    Each row's response is its last token, so its one value is the score of the whole conversation. Shares are divided by
    the pairs of the whole mini-batch.
    """

    outputs = frozenset({"values"})

    def __init__(self, totals: LossTotals, center_coef: float) -> None:
        """Store the totals of the whole mini-batch, both sides of a pair counted, and the weight of the centering term."""
        self._num_pairs = totals.num_sequences // 2
        self._center_coef = center_coef

    def __call__(self, outputs: TokenOutputs, micro_batch: DataProto) -> tuple[Tensor, Mapping[str, Metric]]:
        """See ``LossFunction``."""
        if outputs.values is None:
            msg = "the engine did not return values, which this loss asked for in its `outputs`: a fault of the engine"
            raise RuntimeError(msg)
        scores = outputs.values[:, 0]
        losses, shares = judged(scores, micro_batch.batch["margin"], self._center_coef, self._num_pairs)
        return losses.sum() / self._num_pairs, {f"train/{name}": share for name, share in shares.items()}


def judged(scores: Tensor, margins: Tensor, center_coef: float, num_pairs: int) -> tuple[Tensor, dict[str, Metric]]:
    """The loss of each pair, and shares of what the scores say about all ``num_pairs`` pairs.

    Args:
        scores: of better and worse answers in turns, [2P].
        margins: of the pairs, each twice, [2P].
        center_coef: see ``bradley_terry``.
        num_pairs: of the whole mini-batch.

    Returns:
        [P] losses; ``accuracy`` (a tie counts half), ``margin`` (of the scores), ``chosen_score``, ``rejected_score``.
    """
    chosen, rejected = scores[::2], scores[1::2]
    losses = bradley_terry(chosen, rejected, margins[::2].to(scores), center_coef)
    with torch.no_grad():
        difference = chosen - rejected
        means = {
            "accuracy": ((difference.sign() + 1) / 2).masked_fill(difference.isnan(), torch.nan),
            "margin": difference,
            "chosen_score": chosen,
            "rejected_score": rejected,
        }
        sums = torch.stack([values.detach().double().sum() for values in means.values()]).tolist()
    # A score that is not finite makes a share NaN, and the mean is to show it.
    shares = {name: Metric(total / num_pairs, "sum", keep_nan=True) for name, total in zip(means, sums, strict=True)}
    return losses, shares


class RMWorker(TrainedEngineWorker):
    """One process of the group."""

    def __init__(self, context: WorkerContext, config: RMTrainerConfig, *, total_training_steps: int | None) -> None:
        """Build the engine; nothing is allocated before ``init_model``.

        Args:
            context: rank, device and collective of this worker.
            config: the whole run's configuration.
            total_training_steps: steps of the run, for the learning-rate schedule.
        """
        engine = build_rm(config, total_training_steps, context, get_registry())
        super().__init__(context, engine, "rm", part=None)
        self._center_coef = config.loss.center_coef

    @register(dispatch_mode=make_mini_batch_dispatch_fn(MESH))
    def update_rm(self, pairs: DataProto) -> dict[str, Metric] | None:
        """Take the optimizer steps of the pairs' mini-batch plan; metrics under ``train/``."""
        batch = side_by_side(pairs)
        plan: MiniBatchPlan = batch.meta_info[PLAN_KEY]
        make_loss = partial(PairLoss, center_coef=self._center_coef)
        with self.phases.during(Phase.UPDATE_REWARD_MODEL):
            report = run_updates(self.engine, batch, plan, make_loss, prefix="train")
        return report.metrics if self.engine.dispatch_info().is_collect else None

    @register(dispatch_mode=make_mini_batch_dispatch_fn(MESH))
    def judge_pairs(self, pairs: DataProto) -> dict[str, Metric] | None:
        """``loss``, ``accuracy``, ``margin``, ``chosen_score`` and ``rejected_score`` without learning, as shares.

        Args:
            pairs: with a plan, which says how pairs are shared out and how many there are.
        """
        batch = side_by_side(pairs)
        plan: MiniBatchPlan = batch.meta_info[PLAN_KEY]
        with self.phases.during(Phase.COMPUTE_LOSS):
            shares = [self._shares(batch.select_idxs(part.rows), part.totals) for part in plan.batches]
        return merge_metrics(shares) or None

    def _shares(self, rows: DataProto, totals: LossTotals) -> dict[str, Metric]:
        result = self.engine.forward(rows, {"values"})
        if result is None:
            return {}
        num_pairs = totals.num_sequences // 2
        # In float64, so that the sums do not depend on how the pairs were shared out.
        scores = Jagged.of(result.batch["values"]).values.double()
        losses, shares = judged(scores, rows.batch["margin"].to(scores.device), self._center_coef, num_pairs)
        return {"loss": Metric(float(losses.sum()) / num_pairs, "sum", keep_nan=True)} | shares

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def model_fingerprint(self) -> str:
        """A short name for the architecture: two models with equal tensor names, shapes and dtypes share it."""
        return fingerprint(self.engine.weight_manifest())


def side_by_side(pairs: DataProto) -> DataProto:
    """A batch of pairs as one of conversations: the better and the worse of each pair in turns, kept together.

    Returns:
        Jagged ``input_ids``, ``responses`` (of each conversation its last token) and ``response_mask``, ``margin`` [2P],
        and the plan in terms of these rows.
    """
    columns = (Jagged.of(pairs.batch[name]).rows() for name in ("chosen_ids", "rejected_ids"))
    rows = [side for pair in zip(*columns, strict=True) for side in pair]
    batch = DataProto.from_dict(
        tensors={
            "input_ids": jagged_from_rows(rows, torch.int64),
            "responses": jagged_from_rows([row[-1:] for row in rows], torch.int64),
            "response_mask": jagged_from_rows([torch.ones(1) for _ in rows], torch.bool),
            "margin": pairs.batch["margin"].repeat_interleave(2),
        },
        meta_info={ROWS_TOGETHER_KEY: 2},
    )
    plan: MiniBatchPlan = pairs.meta_info[PLAN_KEY]
    batch.meta_info[PLAN_KEY] = MiniBatchPlan(tuple(_both(part) for part in plan.batches))
    return batch


def _both(part: MiniBatch) -> MiniBatch:
    rows = (2 * part.rows[:, None] + np.arange(2)).reshape(-1)
    return MiniBatch(rows=rows, totals=part.totals, epoch=part.epoch, index=part.index)
