"""The critic worker: the value function, only there for estimators that need values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rl_core.contracts.mini_batch import PLAN_KEY, MiniBatchPlan
from rl_core.metrics import Metric
from rl_core.plugins import get_registry
from rl_core.single_controller.base import Dispatch, DispatchInfo, Worker, WorkerContext, register
from rl_core.single_controller.base.mesh import (
    make_mini_batch_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
)
from rl_core.workers.build import build_critic, evictable_states
from rl_core.workers.losses import ValueLoss
from rl_core.workers.memory import MemoryMeter, memory_metrics
from rl_core.workers.movable import MovableEngine
from rl_core.workers.phases import Part, Phase, PhaseTable
from rl_core.workers.update import run_updates

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import PPOTrainerConfig


class CriticWorker(Worker):
    """One process of the critic group."""

    def __init__(self, context: WorkerContext, config: PPOTrainerConfig, *, total_training_steps: int | None) -> None:
        """Build the engine; nothing is allocated before ``init_model``. Arguments as for the actor's worker."""
        super().__init__(context)
        self.config = config
        self.registry = get_registry()
        self.engine = build_critic(config, total_training_steps, context, self.registry)
        self.phases = PhaseTable(
            {Part.CRITIC: MovableEngine(self.engine)},
            evictable_states(Part.CRITIC, self.engine.config.plugin),
            MemoryMeter(self.device),
        )

    def dispatch_info(self, mesh_name: str) -> DispatchInfo:
        """The only mesh is ``critic``."""
        return self.engine.dispatch_info()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the weights."""
        self.engine.initialize()
        self.phases.evict_all()

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("critic"))
    def compute_values(self, batch: DataProto) -> DataProto | None:
        """``values`` (jagged): the estimate before each response token is emitted."""
        with self.phases.during(Phase.VALUES):
            return self.engine.forward(batch, {"values"})

    @register(dispatch_mode=make_mini_batch_dispatch_fn("critic"))
    def update_critic(self, batch: DataProto) -> dict[str, Metric] | None:
        """Take the optimizer steps of the batch's mini-batch plan; metrics under ``critic/``."""
        plan: MiniBatchPlan = batch.meta_info[PLAN_KEY]
        config = self.config.critic
        with self.phases.during(Phase.UPDATE_CRITIC):
            report = run_updates(
                self.engine, batch, plan, lambda totals: ValueLoss(config, totals, self.registry), prefix="critic"
            )
        return report.metrics if self.engine.dispatch_info().is_collect else None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_checkpoint(self, directory: str) -> None:
        """Write weights, optimizer, schedule and RNG below ``directory``."""
        with self.phases.during(Phase.CHECKPOINT):
            self.engine.save(Path(directory))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, directory: str) -> None:
        """Take over a checkpoint."""
        with self.phases.during(Phase.CHECKPOINT):
            self.engine.load(Path(directory))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def export_hf(self, directory: str) -> None:
        """Write the value function as a Hugging Face checkpoint."""
        with self.phases.during(Phase.CHECKPOINT):
            self.engine.export_hf(Path(directory))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def memory_metrics(self) -> dict[str, Metric]:
        """What the phases since the last call held in memory; see ``rl_core.workers.memory``."""
        return memory_metrics("critic", self.phases)

    def close(self) -> None:
        """Give everything back."""
        self.engine.close()
