"""The critic worker: the value function, only there for estimators that need values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.contracts.mini_batch import PLAN_KEY, MiniBatchPlan
from rl_core.metrics import Metric
from rl_core.plugins import get_registry
from rl_core.single_controller.base import WorkerContext, register
from rl_core.single_controller.base.mesh import (
    make_mini_batch_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
)
from rl_core.workers.build import build_critic
from rl_core.workers.engine_worker import TrainedEngineWorker
from rl_core.workers.losses import ValueLoss
from rl_core.workers.phases import Part, Phase
from rl_core.workers.update import run_updates

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import PPOTrainerConfig


class CriticWorker(TrainedEngineWorker):
    """One process of the critic group."""

    def __init__(self, context: WorkerContext, config: PPOTrainerConfig, *, total_training_steps: int | None) -> None:
        """Build the engine; nothing is allocated before ``init_model``. Arguments as for the actor's worker."""
        self.config = config
        self.registry = get_registry()
        engine = build_critic(config, total_training_steps, context, self.registry)
        super().__init__(
            context, engine, "critic", Part.CRITIC, profiler=config.global_profiler, role=config.critic.profiler
        )

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
