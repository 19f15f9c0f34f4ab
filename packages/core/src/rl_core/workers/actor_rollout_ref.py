"""The fused worker: policy in training, its generator, and its reference, on the same devices.

They concern the same weights, so handing them over is a local move (``Resharding``) and one phase table says who has
the memory. Built from contracts: which engines they are, only the configuration knows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from rl_core.config.phase_table import evictable_states
from rl_core.contracts.mini_batch import PLAN_KEY, MiniBatchPlan
from rl_core.contracts.rollout import RolloutEngine
from rl_core.contracts.weights import fingerprint
from rl_core.metrics import Metric
from rl_core.plugins import get_registry
from rl_core.single_controller.base import Dispatch, DispatchInfo, WorkerContext, register
from rl_core.single_controller.base.mesh import (
    make_mini_batch_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
    make_nd_gather_dataproto_dispatch_fn,
)
from rl_core.workers.async_runner import AsyncRunner
from rl_core.workers.background_rollouts import BackgroundRollouts
from rl_core.workers.build import build_actor, build_reference, build_rollout
from rl_core.workers.device_peak import device_peak
from rl_core.workers.generation import generate_rows
from rl_core.workers.losses import PolicyLoss
from rl_core.workers.memory import MemoryMeter, memory_metrics
from rl_core.workers.movable import MovableEngine, MovableRollout
from rl_core.workers.out_of_memory import ExplainsMemory
from rl_core.workers.phases import Movable, Part, Phase, PhaseTable, State
from rl_core.workers.profiling.worker import ProfiledWorker
from rl_core.workers.saving import SavingWorker
from rl_core.workers.throughput import PhaseClock
from rl_core.workers.update import run_updates

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import PPOTrainerConfig
    from rl_core.contracts.engine import TrainingEngine
    from rl_core.contracts.resharding import Resharding
    from rl_core.contracts.weights import SyncReport


class ActorRolloutRefWorker(ExplainsMemory, SavingWorker, ProfiledWorker):
    """One process of the actor-rollout-reference group."""

    def __init__(
        self,
        context: WorkerContext,
        config: PPOTrainerConfig,
        *,
        with_reference: bool,
        total_training_steps: int | None,
    ) -> None:
        """Build the engines; nothing is allocated before ``init_model``.

        Args:
            context: rank, device and collective of this worker.
            config: the whole run's configuration.
            with_reference: whether a KL term needs the reference policy.
            total_training_steps: trainer steps of the run, for the learning-rate schedule.
        """
        section = config.actor_rollout_ref
        roles = [section.actor.profiler, *([section.ref.profiler] if with_reference else [])]
        super().__init__(context, name="actor_rollout_ref", profiler=config.global_profiler, roles=roles)
        self.config = config
        self.registry = get_registry()
        self.runner = AsyncRunner(f"rollout-loop-{context.rank}", deadline_s=config.trainer.worker_deadline_s)
        self.actor: TrainingEngine = build_actor(config, total_training_steps, context, self.registry)
        self.rollout: RolloutEngine = build_rollout(config, context, self.registry)
        self.reference: TrainingEngine | None = None
        if with_reference and config.actor_rollout_ref.model.lora_rank == 0:
            self.reference = build_reference(config, context, self.registry)
        engines = [engine for engine in (self.actor, self.reference) if engine is not None]
        self.clock = PhaseClock(engines, device_peak(self.device))
        self.phases = self._phase_table()
        self.resharding = self._resharding()
        self.background = BackgroundRollouts(self.rollout, self.resharding, self.runner)
        self.policy_version = 0

    def _phase_table(self) -> PhaseTable:
        rollout_config = self.config.actor_rollout_ref.rollout
        parts: dict[Part, Movable] = {
            Part.ACTOR: MovableEngine(self.actor),
            Part.ROLLOUT: MovableRollout(self.rollout, self.runner.run, sleep_level=2),
        }
        evictable: set[State] = evictable_states(Part.ACTOR, self.actor.config.plugin)
        if self.reference is not None:
            parts[Part.REF] = MovableEngine(self.reference)
            evictable |= evictable_states(Part.REF, self.reference.config.plugin)
        if rollout_config.free_cache_engine:
            evictable |= {(Part.ROLLOUT, "weights"), (Part.ROLLOUT, "kv_cache")}
        return PhaseTable(parts, evictable, MemoryMeter(self.device), self.clock)

    def _resharding(self) -> Resharding:
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        record = self.registry.pairing(actor.strategy, rollout.name).record
        resharding_class = cast("type[Resharding]", self.registry.load("resharding", record.name))
        return resharding_class(
            self.actor,
            self.rollout,
            phases=self.phases,
            run=self.runner.run,
            context=self.context,
            bucket_bytes=rollout.checkpoint_engine.update_weights_bucket_megabytes * 2**20,
        )

    def dispatch_info(self, mesh_name: str) -> DispatchInfo:
        """Meshes: ``actor`` and ``ref`` (training engines), ``rollout`` (replicas)."""
        if mesh_name == "rollout":
            return self.rollout.dispatch_info()
        if mesh_name == "ref" and self.reference is not None:
            return self.reference.dispatch_info()
        return self.actor.dispatch_info()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the weights and start the generator, which sleeps until it is needed."""
        # One after the other, each out of the way before the next: the generator measures the memory it finds.
        self.actor.initialize()
        self.phases.evict_all()
        if self.reference is not None:
            self.reference.initialize()
            self.phases.evict_all()
        self.runner.run(self.rollout.initialize())
        self.phases.evict_all()

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("rollout"))
    def generate_sequences(self, prompts: DataProto) -> DataProto | None:
        """Sample one response for each row with the current weights.

        Args:
            prompts: jagged ``prompts``, int64 ``seed``, object ``uid``; ``meta_info["sampling"]`` and
                ``meta_info["deadline_s"]``.

        Returns:
            Jagged ``responses``, ``input_ids``, ``response_mask``, ``rollout_log_probs`` (absent if the engine has none),
            object ``finish_reason``, ``rollout_error`` (None, or why the row has no response) and ``rollout_failure``
            (None, or its ``FailureKind``), int64 ``weight_version``; None on workers that do not lead a replica.
        """
        self.background.require_closed("generate_sequences")
        with self.resharding.generation(self.policy_version) as sync:
            result = None
            if self.rollout.dispatch_info().is_collect:
                result = self.runner.run(generate_rows(self.rollout, prompts, self.policy_version))
                result.meta_info["metrics"] = {**_sync_metrics(sync), **self.runner.run(self.rollout.metrics())}
        return result

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("rollout"))
    def submit_rollouts(self, prompts: DataProto) -> DataProto | None:
        """Start one response for each row, or go on with one that was cut; the devices are the generator's from now on.

        Args:
            prompts: as for ``generate_sequences``, with the columns of ``rollout_rows.pack_rows``: what there is of each
                response, empty for a new one.

        Returns:
            No rows; the metrics of the hand-over, when this call took the devices. None on workers that do not lead.
        """
        result, sync = self.background.submit(prompts, self.policy_version)
        if result is not None and sync is not None:
            result.meta_info["metrics"] = _sync_metrics(sync)
        return result

    @register(dispatch_mode=make_nd_gather_dataproto_dispatch_fn("rollout"))
    def poll_rollouts(self, wait_s: float) -> DataProto | None:
        """The rows that have ended since the last call; each replica waits up to ``wait_s`` seconds for its first.

        Returns:
            The columns of ``rollout_rows.pack_rows``; None on workers that do not lead a replica.
        """
        return self.background.poll(wait_s)

    @register(dispatch_mode=make_nd_gather_dataproto_dispatch_fn("rollout"))
    def abort_rollouts(self) -> DataProto | None:
        """Cut what is left, and give the devices back to training.

        Returns:
            All remaining rows as for ``poll_rollouts``; those with finish reason ``abort`` can be submitted again. The
            metrics of the generation engine.
        """
        return self.background.abort()

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"))
    def compute_log_prob(self, batch: DataProto) -> DataProto | None:
        """Log-probs of the responses under the policy as it is now: ``old_log_probs`` (jagged).

        With them ``entropy`` and ``sum_pi_squared``, where the configuration wants them.
        """
        actor = self.config.actor_rollout_ref.actor
        outputs = {"log_probs"}
        if actor.calculate_entropy or actor.entropy_coeff:
            outputs.add("entropy")
        if actor.calculate_sum_pi_squared:
            outputs.add("sum_pi_squared")
        with self.phases.during(Phase.LOG_PROB):
            result = self.actor.forward(batch, outputs)
        return None if result is None else result.rename("log_probs", "old_log_probs")

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("ref"))
    def compute_ref_log_prob(self, batch: DataProto) -> DataProto | None:
        """Log-probs of the responses under the frozen reference policy: ``ref_log_prob`` (jagged)."""
        if self.reference is not None:
            with self.phases.during(Phase.REF_LOG_PROB):
                result = self.reference.forward(batch, {"log_probs"})
        else:
            with self.phases.during(Phase.LOG_PROB), self.actor.disable_adapter():
                result = self.actor.forward(batch, {"log_probs"})
        return None if result is None else result.rename("log_probs", "ref_log_prob")

    @register(dispatch_mode=make_mini_batch_dispatch_fn("actor"))
    def update_actor(self, batch: DataProto) -> dict[str, Metric] | None:
        """Take the optimizer steps of the batch's mini-batch plan; metrics under ``actor/``."""
        plan: MiniBatchPlan = batch.meta_info[PLAN_KEY]
        config, correction = self.config.actor_rollout_ref.actor, self.config.algorithm.rollout_correction
        with self.phases.during(Phase.UPDATE_ACTOR):
            report = run_updates(
                self.actor,
                batch,
                plan,
                lambda totals: PolicyLoss(config, totals, self.registry, correction),
                prefix="actor",
            )
        self.policy_version += report.num_applied
        return report.metrics if self.actor.dispatch_info().is_collect else None

    @property
    def trained(self) -> TrainingEngine:
        """See ``SavingWorker``."""
        return self.actor

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, directory: str, policy_version: int) -> None:
        """Take over a checkpoint; the generator's weights are stale from here on."""
        with self.phases.during(Phase.CHECKPOINT):
            self.actor.load(Path(directory))
        self.policy_version = policy_version

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def export_hf(self, directory: str) -> None:
        """Write the policy as a Hugging Face checkpoint."""
        with self.phases.during(Phase.CHECKPOINT):
            self.actor.export_hf(Path(directory))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def phase_metrics(self) -> dict[str, Metric]:
        """What the phases since the last call held in memory and how fast they computed."""
        return memory_metrics("actor_rollout_ref", self.phases) | self.clock.take()

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def get_policy_version(self) -> int:
        """Optimizer steps that have changed the weights so far."""
        return self.policy_version

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def model_fingerprint(self) -> str:
        """A short name for the architecture: two models with equal tensor names, shapes and dtypes share it."""
        return fingerprint(self.actor.weight_manifest())

    def close(self) -> None:
        """Give everything back."""
        self.runner.run(self.rollout.close())
        self.runner.close()
        self.actor.close()
        if self.reference is not None:
            self.reference.close()


def _sync_metrics(sync: SyncReport) -> dict[str, Metric]:
    return {
        "timing_s/update_weights": Metric(sync.seconds, "max"),
        "rollout/weight_version": Metric(sync.version, "max"),
        "rollout/weight_bytes": Metric(sync.num_bytes, "sum"),
    }
