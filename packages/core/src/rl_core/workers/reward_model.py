"""The reward model worker: a learned scorer, for runs that have one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from rl_dataproto import DataProto, jagged_from_rows

from rl_core.plugins import get_registry
from rl_core.single_controller.base import Dispatch, DispatchInfo, Worker, WorkerContext, register
from rl_core.single_controller.base.mesh import make_nd_compute_dataproto_dispatch_fn
from rl_core.workers.build import build_reward_model, evictable_states
from rl_core.workers.memory import MemoryMeter, memory_metrics
from rl_core.workers.movable import MovableEngine
from rl_core.workers.phases import Part, Phase, PhaseTable

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.metrics import Metric


class RewardModelWorker(Worker):
    """One process of the reward model group."""

    def __init__(self, context: WorkerContext, config: PPOTrainerConfig) -> None:
        """Build the engine; nothing is allocated before ``init_model``."""
        super().__init__(context)
        self.engine = build_reward_model(config, context, get_registry())
        self.phases = PhaseTable(
            {Part.REWARD_MODEL: MovableEngine(self.engine)},
            evictable_states(Part.REWARD_MODEL, self.engine.config.plugin),
            MemoryMeter(self.device),
        )

    def dispatch_info(self, mesh_name: str) -> DispatchInfo:
        """The only mesh is ``reward_model``."""
        return self.engine.dispatch_info()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the weights."""
        self.engine.initialize()
        self.phases.evict_all()

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("reward_model"))
    def compute_rm_score(self, batch: DataProto) -> DataProto | None:
        """``rm_scores`` (jagged): the score of the whole sequence on its last response token, 0.0 before it."""
        with self.phases.during(Phase.REWARD_MODEL):
            result = self.engine.forward(batch, {"values"})
        if result is None:
            return None
        scores = []
        for values in result.batch["values"].unbind():
            row = torch.zeros_like(values)
            row[-1:] = values[-1:]
            scores.append(row)
        return DataProto.from_dict(tensors={"rm_scores": jagged_from_rows(scores)})

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def memory_metrics(self) -> dict[str, Metric]:
        """What the phases since the last call held in memory; see ``rl_core.workers.memory``."""
        return memory_metrics("reward_model", self.phases)

    def close(self) -> None:
        """Give everything back."""
        self.engine.close()
