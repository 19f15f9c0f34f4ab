"""What every worker with a single training engine does alike."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rl_core.single_controller.base import Dispatch, DispatchInfo, Worker, WorkerContext, register
from rl_core.workers.build import evictable_states
from rl_core.workers.memory import MemoryMeter, memory_metrics
from rl_core.workers.movable import MovableEngine
from rl_core.workers.phases import Part, Phase, PhaseTable

if TYPE_CHECKING:
    from rl_core.contracts.engine import TrainingEngine
    from rl_core.metrics import Metric


class EngineWorker(Worker):
    """One process of a group that trains, or only asks, one model."""

    def __init__(
        self,
        context: WorkerContext,
        engine: TrainingEngine,
        name: str,
        part: Part | None,
        *,
        beside: Mapping[Part, TrainingEngine] | None = None,
    ) -> None:
        """Store the arguments; nothing is allocated before ``init_model``.

        Args:
            context: rank, device and collective of this worker.
            engine: built, not initialized.
            name: of the group, in the names of its memory metrics.
            part: its column of the phase table; None for an engine that has the devices to itself, so that nothing ever
                leaves them.
            beside: frozen engines that the role needs too, by their columns of the table; built, not initialized.
        """
        super().__init__(context)
        self.engine = engine
        self._name = name
        self._beside = dict(beside or {})
        columns = self._beside if part is None else {part: engine, **self._beside}
        parts = {column: MovableEngine(owner) for column, owner in columns.items()}
        evictable = {
            state for column, owner in columns.items() for state in evictable_states(column, owner.config.plugin)
        }
        self.phases = PhaseTable(parts, evictable, MemoryMeter(self.device))

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
    def memory_metrics(self) -> dict[str, Metric]:
        """What the phases since the last call held in memory; see ``rl_core.workers.memory``."""
        return memory_metrics(self._name, self.phases)

    def close(self) -> None:
        """Give everything back."""
        with ExitStack() as stack:
            for engine in (self.engine, *self._beside.values()):
                stack.callback(engine.close)


class TrainedEngineWorker(EngineWorker):
    """One whose model is trained, and so saved."""

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
        """Write the model as a Hugging Face checkpoint."""
        with self.phases.during(Phase.CHECKPOINT):
            self.engine.export_hf(Path(directory))
