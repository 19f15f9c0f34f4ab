"""The reference policy as a worker of its own, for runs that give it devices of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.plugins import get_registry
from rl_core.single_controller.base import Dispatch, DispatchInfo, Worker, WorkerContext, register
from rl_core.single_controller.base.mesh import make_nd_compute_dataproto_dispatch_fn
from rl_core.workers.build import build_reference, evictable_states
from rl_core.workers.memory import MemoryMeter, memory_metrics
from rl_core.workers.movable import MovableEngine
from rl_core.workers.phases import Part, Phase, PhaseTable

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import PPOTrainerConfig
    from rl_core.metrics import Metric


class ReferenceWorker(Worker):
    """One process of the reference group."""

    def __init__(self, context: WorkerContext, config: PPOTrainerConfig) -> None:
        """Build the engine; nothing is allocated before ``init_model``. Arguments as for the actor's worker."""
        super().__init__(context)
        self.engine = build_reference(config, context, get_registry())
        self.phases = PhaseTable(
            {Part.REF: MovableEngine(self.engine)},
            evictable_states(Part.REF, self.engine.config.plugin),
            MemoryMeter(self.device),
        )

    def dispatch_info(self, mesh_name: str) -> DispatchInfo:
        """The only mesh is ``ref``."""
        return self.engine.dispatch_info()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the weights."""
        self.engine.initialize()
        self.phases.evict_all()

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("ref"))
    def compute_ref_log_prob(self, batch: DataProto) -> DataProto | None:
        """As of the actor's worker: ``ref_log_prob``, jagged like ``responses``."""
        with self.phases.during(Phase.REF_LOG_PROB):
            result = self.engine.forward(batch, {"log_probs"})
        return None if result is None else result.rename("log_probs", "ref_log_prob")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def memory_metrics(self) -> dict[str, Metric]:
        """What the phases since the last call held in memory; see ``rl_core.workers.memory``."""
        return memory_metrics("ref", self.phases)

    def close(self) -> None:
        """Give everything back."""
        self.engine.close()
