"""The reference policy as a worker of its own, for runs that give it devices of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.plugins import get_registry
from rl_core.single_controller.base import WorkerContext, register
from rl_core.single_controller.base.mesh import make_nd_compute_dataproto_dispatch_fn
from rl_core.workers.build import build_reference
from rl_core.workers.engine_worker import EngineWorker
from rl_core.workers.phases import Part, Phase

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import PPOTrainerConfig


class ReferenceWorker(EngineWorker):
    """One process of the reference group."""

    def __init__(self, context: WorkerContext, config: PPOTrainerConfig) -> None:
        """Build the engine; nothing is allocated before ``init_model``. Arguments as for the actor's worker."""
        super().__init__(
            context,
            build_reference(config, context, get_registry()),
            "ref",
            Part.REF,
            profiler=config.global_profiler,
            role=config.actor_rollout_ref.ref.profiler,
        )

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("ref"))
    def compute_ref_log_prob(self, batch: DataProto) -> DataProto | None:
        """As of the actor's worker: ``ref_log_prob``, jagged like ``responses``."""
        with self.phases.during(Phase.REF_LOG_PROB):
            result = self.engine.forward(batch, {"log_probs"})
        return None if result is None else result.rename("log_probs", "ref_log_prob")
