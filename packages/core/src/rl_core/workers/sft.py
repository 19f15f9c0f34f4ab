"""The worker of supervised fine-tuning: one training engine, nothing that generates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_dataproto import pad_jagged

from rl_core.contracts.mini_batch import PLAN_KEY, MiniBatchPlan
from rl_core.contracts.weights import fingerprint
from rl_core.metrics import Metric, merge_metrics
from rl_core.plugins import get_registry
from rl_core.single_controller.base import Dispatch, WorkerContext, register
from rl_core.single_controller.base.mesh import make_mini_batch_dispatch_fn
from rl_core.workers.build import build_sft
from rl_core.workers.engine_worker import TrainedEngineWorker
from rl_core.workers.losses import SFTLoss, mask_of
from rl_core.workers.phases import Phase
from rl_core.workers.update import run_updates

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import SFTTrainerConfig

MESH = "sft"
NLL, TOKENS = "nll", "tokens"
"""Metrics of ``compute_loss``: sums over the batch."""


class SFTWorker(TrainedEngineWorker):
    """One process of the group."""

    def __init__(self, context: WorkerContext, config: SFTTrainerConfig, *, total_training_steps: int | None) -> None:
        """Build the engine; nothing is allocated before ``init_model``.

        Args:
            context: rank, device and collective of this worker.
            config: the whole run's configuration.
            total_training_steps: steps of the run, for the learning-rate schedule.
        """
        engine = build_sft(config, total_training_steps, context, get_registry())
        super().__init__(context, engine, "sft", part=None)

    @register(dispatch_mode=make_mini_batch_dispatch_fn(MESH))
    def update_sft(self, batch: DataProto) -> dict[str, Metric] | None:
        """Take the optimizer steps of the batch's mini-batch plan; metrics under ``train/``."""
        plan: MiniBatchPlan = batch.meta_info[PLAN_KEY]
        with self.phases.during(Phase.UPDATE_SFT):
            report = run_updates(self.engine, batch, plan, SFTLoss, prefix="train")
        return report.metrics if self.engine.dispatch_info().is_collect else None

    @register(dispatch_mode=make_mini_batch_dispatch_fn(MESH))
    def compute_loss(self, batch: DataProto) -> dict[str, Metric] | None:
        """Negative log-likelihood (``nll``, in nats) of the learned tokens and their number (``tokens``), as sums.

        Args:
            batch: with a plan, which says only how rows are shared out.
        """
        plan: MiniBatchPlan = batch.meta_info[PLAN_KEY]
        with self.phases.during(Phase.COMPUTE_LOSS):
            sums = [self._sums(batch.select_idxs(mini_batch.rows)) for mini_batch in plan.batches]
        return merge_metrics(sums) or None

    def _sums(self, rows: DataProto) -> dict[str, Metric]:
        result = self.engine.forward(rows, {"log_probs"})
        if result is None:
            return {}
        if not len(rows):
            return {NLL: Metric(0.0, "sum"), TOKENS: Metric(0, "sum")}
        mask = mask_of(rows).to(result.batch["log_probs"].device)
        # In float64, so that the sum does not depend on how the rows were shared out.
        log_probs = pad_jagged(result.batch["log_probs"], 0.0, length=mask.shape[1]).double()
        return {NLL: Metric(-float(log_probs[mask].sum()), "sum"), TOKENS: Metric(int(mask.sum()), "sum")}

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def model_fingerprint(self) -> str:
        """A short name for the architecture: two models with equal tensor names, shapes and dtypes share it."""
        return fingerprint(self.engine.weight_manifest())
