"""What every worker with a single training engine does alike."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rl_core.config.phase_table import evictable_states
from rl_core.single_controller.base import Dispatch, DispatchInfo, WorkerContext, register
from rl_core.workers.device_peak import device_peak
from rl_core.workers.memory import MemoryMeter, memory_metrics
from rl_core.workers.movable import MovableEngine
from rl_core.workers.out_of_memory import ExplainsMemory
from rl_core.workers.phases import Part, Phase, PhaseTable
from rl_core.workers.profiling.worker import ProfiledWorker
from rl_core.workers.saving import SavingWorker
from rl_core.workers.throughput import PhaseClock

if TYPE_CHECKING:
    from rl_core.config.profiler import GlobalProfilerConfig, RoleProfilerConfig
    from rl_core.contracts.engine import TrainingEngine
    from rl_core.metrics import Metric


class EngineWorker(ExplainsMemory, ProfiledWorker):
    """One process of a group that trains, or only asks, one model."""

    def __init__(
        self,
        context: WorkerContext,
        engine: TrainingEngine,
        name: str,
        part: Part | None,
        *,
        beside: Mapping[Part, TrainingEngine] | None = None,
        profiler: GlobalProfilerConfig | None = None,
        role: RoleProfilerConfig | None = None,
    ) -> None:
        """Store the arguments; nothing is allocated before ``init_model``.

        Args:
            context: rank, device and collective of this worker.
            engine: built, not initialized.
            name: of the group, in the names of its memory metrics.
            part: its column of the phase table; None for an engine that has the devices to itself, so that nothing ever
                leaves them.
            profiler: of the run, for one whose steps can be recorded.
            role: which ranks of the role are.
            beside: frozen engines that the role needs too, by their columns of the table; built, not initialized.
        """
        super().__init__(context, name=name, profiler=profiler, roles=[] if role is None else [role])
        self.engine = engine
        self._beside = dict(beside or {})
        columns = self._beside if part is None else {part: engine, **self._beside}
        parts = {column: MovableEngine(owner) for column, owner in columns.items()}
        evictable = {
            state for column, owner in columns.items() for state in evictable_states(column, owner.config.plugin)
        }
        self.clock = PhaseClock((engine, *self._beside.values()), device_peak(self.device))
        self.phases = PhaseTable(parts, evictable, MemoryMeter(self.device), self.clock)

    def dispatch_info(self, mesh_name: str) -> DispatchInfo:
        """Every mesh of the group is the engine's."""
        return self.engine.dispatch_info()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Load the weights."""
        for engine in (self.engine, *self._beside.values()):
            engine.initialize()
            self.phases.evict_all()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def phase_metrics(self) -> dict[str, Metric]:
        """What the phases since the last call held in memory and how fast they computed."""
        return memory_metrics(self._name, self.phases) | self.clock.take()

    def close(self) -> None:
        """Give everything back."""
        with ExitStack() as stack:
            for engine in (self.engine, *self._beside.values()):
                stack.callback(engine.close)


class TrainedEngineWorker(SavingWorker, EngineWorker):
    """One whose model is trained, and so saved."""

    @property
    def trained(self) -> TrainingEngine:
        """See ``SavingWorker``."""
        return self.engine

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(self, directory: str) -> None:
        """Take over a checkpoint."""
        with self.phases.during(Phase.CHECKPOINT):
            self.engine.load(Path(directory))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def export_hf(self, directory: str) -> None:
        """Write the model as a Hugging Face checkpoint."""
        with self.phases.during(Phase.CHECKPOINT):
            self.engine.export_hf(Path(directory))
