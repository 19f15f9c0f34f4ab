"""How a worker's trained model is saved: at once, or while training goes on."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from rl_core.contracts.engine import SaveState, TrainingEngine
from rl_core.single_controller.base import Dispatch, register
from rl_core.workers.phases import Phase

if TYPE_CHECKING:
    from rl_core.workers.phases import PhaseTable


class SavingWorker:
    """The part of a worker that saves its engine."""

    phases: PhaseTable

    @property
    @abstractmethod
    def trained(self) -> TrainingEngine:
        """The engine that is saved."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_checkpoint(self, directory: str) -> None:
        """Write weights, optimizer, schedule and RNG below ``directory``."""
        with self.phases.during(Phase.CHECKPOINT):
            self.trained.save(Path(directory))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def start_checkpoint(self, directory: str) -> None:
        """The same, but return once everything is copied; see ``TrainingEngine.start_save``."""
        with self.phases.during(Phase.CHECKPOINT):
            self.trained.start_save(Path(directory))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def poll_checkpoint(self) -> SaveState:
        """How far this rank is with it."""
        return self.trained.poll_save()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def finish_checkpoint(self) -> None:
        """Wait until every rank has written, and make it whole."""
        self.trained.finish_save()
