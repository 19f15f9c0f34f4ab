"""The worker of supervised fine-tuning: one training engine, nothing that generates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rl_dataproto import pad_jagged

from rl_core.contracts.mini_batch import PLAN_KEY, MiniBatchPlan
from rl_core.contracts.weights import fingerprint
from rl_core.metrics import Metric, merge_metrics
from rl_core.plugins import get_registry
from rl_core.single_controller.base import Dispatch, DispatchInfo, Worker, WorkerContext, register
from rl_core.single_controller.base.mesh import make_mini_batch_dispatch_fn
from rl_core.workers.build import build_sft
from rl_core.workers.losses import SFTLoss, mask_of
from rl_core.workers.memory import MemoryMeter, memory_metrics
from rl_core.workers.phases import Phase, PhaseTable
from rl_core.workers.update import run_updates

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import SFTTrainerConfig

MESH = "sft"
NLL, TOKENS = "nll", "tokens"
"""Metrics of ``compute_loss``: sums over the batch."""


class SFTWorker(Worker):
    """One process of the group. Its engine has the devices to itself, so nothing ever leaves them."""

    def __init__(self, context: WorkerContext, config: SFTTrainerConfig, *, total_training_steps: int | None) -> None:
        """Build the engine; nothing is allocated before ``init_model``.

        Args:
            context: rank, device and collective of this worker.
            config: the whole run's configuration.
            total_training_steps: steps of the run, for the learning-rate schedule.
        """
        super().__init__(context)
        self.config = config
        self.engine = build_sft(config, total_training_steps, context, get_registry())
        self.phases = PhaseTable({}, set(), MemoryMeter(self.device))  # without parts: it measures and moves nothing

    def dispatch_info(self, mesh_name: str) -> DispatchInfo:
        """The only mesh is ``sft``."""
        return self.engine.dispatch_info()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the weights."""
        self.engine.initialize()

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

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_checkpoint(self, directory: str) -> None:
        """Write weights, optimizer, schedule and RNG below ``directory``."""
        self.engine.save(Path(directory))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, directory: str) -> None:
        """Take over a checkpoint."""
        self.engine.load(Path(directory))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def export_hf(self, directory: str) -> None:
        """Write the model as a Hugging Face checkpoint."""
        self.engine.export_hf(Path(directory))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def memory_metrics(self) -> dict[str, Metric]:
        """What the phases since the last call held in memory; see ``rl_core.workers.memory``."""
        return memory_metrics("sft", self.phases)

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def model_fingerprint(self) -> str:
        """A short name for the architecture: two models with equal tensor names, shapes and dtypes share it."""
        return fingerprint(self.engine.weight_manifest())

    def close(self) -> None:
        """Give everything back."""
        self.engine.close()
