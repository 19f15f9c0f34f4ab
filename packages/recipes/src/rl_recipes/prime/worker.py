"""PRIME's process reward model: a language model in training, and the frozen one that it is measured against."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rl_core.contracts.engine import EngineRole
from rl_core.contracts.mini_batch import PLAN_KEY, MiniBatchPlan
from rl_core.errors import DataError
from rl_core.metrics import Metric
from rl_core.plugins import get_registry
from rl_core.single_controller.base import WorkerContext, register
from rl_core.single_controller.base.mesh import make_mini_batch_dispatch_fn, make_nd_compute_dataproto_dispatch_fn
from rl_core.workers.build import build_reward_model
from rl_core.workers.engine_worker import TrainedEngineWorker
from rl_core.workers.losses import mask_of
from rl_core.workers.phases import Part, Phase
from rl_core.workers.update import run_updates
from rl_dataproto import DataProto, lengths, pad_jagged, to_jagged

from rl_recipes.prime.loss import REFERENCE_COLUMN, ImplicitRewardLoss, implicit_rewards, outcomes_of

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from torch import Tensor

MESH: Final = "reward_model"


class PrimeRewardModelWorker(TrainedEngineWorker):
    """One process of the reward model group."""

    def __init__(self, context: WorkerContext, config: PPOTrainerConfig, *, total_training_steps: int | None) -> None:
        """Build both engines; nothing is allocated before ``init_model``.

        Args:
            context: rank, device and collective of this worker.
            config: the whole run's configuration.
            total_training_steps: steps of the run, for the learning-rate schedule.
        """
        registry = get_registry()
        section: Any = config.reward_model  # the plugin's own section hangs at it
        self._beta: float = section.prime.beta
        is_trained = section.update != "none"
        engine = build_reward_model(
            config,
            context,
            registry,
            role=EngineRole.POLICY if is_trained else EngineRole.REFERENCE,
            is_trained=is_trained,
            total_training_steps=total_training_steps,
        )
        frozen = replace(section.model, path=section.prime.ref_path or section.model.path)
        reference = build_reward_model(config, context, registry, role=EngineRole.REFERENCE, model=frozen)
        super().__init__(context, engine, "reward_model", Part.REWARD_MODEL, beside={Part.REWARD_REFERENCE: reference})
        self._reference = reference

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(MESH))
    def compute_rm_score(self, batch: DataProto) -> DataProto | None:
        """``rm_scores``, the process reward of each response token, and ``rm_ref_log_prob``, jagged like ``responses``.

        Args:
            batch: the rows; one that has ``rm_ref_log_prob`` already spares the reference its pass.
        """
        if REFERENCE_COLUMN in batch.batch.keys():  # noqa: SIM118 - a TensorDict
            known: DataProto | None = batch.select(batch_keys=[REFERENCE_COLUMN], non_tensor_batch_keys=[])
        else:
            with self.phases.during(Phase.REWARD_REFERENCE):
                found = self._reference.forward(batch, {"log_probs"})
            known = None if found is None else found.rename("log_probs", REFERENCE_COLUMN)
        with self.phases.during(Phase.REWARD_MODEL):
            scored = self.engine.forward(batch, {"log_probs"})
        if scored is None or known is None:
            return None
        mask = mask_of(batch)
        log_prob, ref_log_prob = (
            _padded(column, mask) for column in (scored.batch["log_probs"], known.batch[REFERENCE_COLUMN])
        )
        rewards = implicit_rewards(log_prob, ref_log_prob, mask.to(log_prob.device), self._beta)
        widths = lengths(batch.batch["response_mask"])
        columns = {"rm_scores": rewards, REFERENCE_COLUMN: ref_log_prob}
        return DataProto.from_dict(tensors={name: to_jagged(column, widths) for name, column in columns.items()})

    @register(dispatch_mode=make_mini_batch_dispatch_fn(MESH))
    def update_reward_model(self, batch: DataProto) -> dict[str, Metric] | None:
        """Take the optimizer steps of the batch's mini-batch plan; metrics under ``reward_model/``.

        Args:
            batch: what ``compute_rm_score`` gave, and ``token_level_scores``, whose sum over a row is its outcome.

        Raises:
            DataError: an outcome lies outside [0, 1].
        """
        _require_outcomes(outcomes_of(batch))
        plan: MiniBatchPlan = batch.meta_info[PLAN_KEY]
        with self.phases.during(Phase.UPDATE_REWARD_MODEL):
            report = run_updates(
                self.engine, batch, plan, lambda totals: ImplicitRewardLoss(self._beta, totals), prefix="reward_model"
            )
        return report.metrics if self.engine.dispatch_info().is_collect else None


def _padded(column: Tensor, mask: Tensor) -> Tensor:
    return pad_jagged(column, 0.0, length=mask.shape[1])


def _require_outcomes(outcomes: Tensor) -> None:
    strangers = outcomes[~((outcomes >= 0) & (outcomes <= 1))]
    if len(strangers):
        msg = (
            f"PRIME trains its reward model to tell right (1) from wrong (0); {len(strangers)} of {len(outcomes)} rewards lie "
            f"outside, the first is {float(strangers[0]):g}. Use a reward function that returns numbers from 0 to 1"
        )
        raise DataError(msg)
