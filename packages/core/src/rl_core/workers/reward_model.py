"""The reward model worker: a learned scorer, for runs that have one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from rl_dataproto import DataProto, jagged_from_rows

from rl_core.plugins import get_registry
from rl_core.single_controller.base import WorkerContext, register
from rl_core.single_controller.base.mesh import make_nd_compute_dataproto_dispatch_fn
from rl_core.workers.build import build_reward_model
from rl_core.workers.engine_worker import EngineWorker
from rl_core.workers.phases import Part, Phase

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig


class RewardModelWorker(EngineWorker):
    """One process of the reward model group."""

    def __init__(self, context: WorkerContext, config: PPOTrainerConfig) -> None:
        """Build the engine; nothing is allocated before ``init_model``."""
        super().__init__(
            context, build_reward_model(config, context, get_registry()), "reward_model", Part.REWARD_MODEL
        )

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
