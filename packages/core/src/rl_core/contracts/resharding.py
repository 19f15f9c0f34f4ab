"""The resharding contract: hands the weights of a training engine to a generation engine, around generation.

``with resharding.generation(version):`` is the seed's sharding manager. On entry the devices move from training to
generation in steps, so that old weights, new weights and the cache never stand in memory together::

    (training) ──▶ SYNC_WEIGHTS: trainer weights + generator weights ──▶ GENERATE: generator weights + cache
               ◀────────────────────────── sleep ─────────────────────────────────┘

A concrete class only says how tensors travel (``move``); order, versions and failure are the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rl_core.contracts.weights import SyncReport

if TYPE_CHECKING:
    from rl_core.contracts.engine import TrainingEngine
    from rl_core.contracts.rollout import RolloutEngine
    from rl_core.single_controller.base.collective import WorkerContext

T = TypeVar("T")
RunCoroutine = Callable[[Coroutine[Any, Any, T]], T]
"""Runs a coroutine on the worker's event loop and waits for it."""


class DevicePhases(Protocol):
    """Moves the system between its phases (``rl_core.workers.phases``)."""

    def enter(self, phase: str) -> None:
        """Evict what ``phase`` does not need, then load what it needs."""

    def leave(self, phase: str) -> None:
        """Evict what only ``phase`` needed."""


class Resharding(ABC):
    """Connects one training engine and one generation engine on a worker."""

    def __init__(
        self,
        engine: TrainingEngine,
        rollout: RolloutEngine,
        *,
        phases: DevicePhases,
        run: RunCoroutine[Any],
        context: WorkerContext,
        bucket_bytes: int,
    ) -> None:
        """Store the arguments.

        Args:
            engine: the policy's training engine on this worker.
            rollout: the generation engine on this worker.
            phases: moves states on and off the device.
            run: runs the rollout engine's coroutines.
            context: rank and collective of this worker.
            bucket_bytes: size of a weight bucket.
        """
        self.engine = engine
        self.rollout = rollout
        self.phases = phases
        self.run = run
        self.context = context
        self.bucket_bytes = bucket_bytes

    @abstractmethod
    def move(self, version: int) -> SyncReport:
        """Send the trainer's weights to this worker's sinks as ``version``. Collective over the worker group.

        Raises:
            WeightSyncError: any rank's sink refused or received something else; raised on every rank.
        """

    @contextmanager
    def generation(self, version: int) -> Iterator[SyncReport]:
        """The devices are the generator's inside, the trainer's outside.

        Weights move only when the generator does not hold ``version`` already.
        """
        try:
            self.phases.enter("sync_weights")
            report = self._synced(version)
            self.phases.enter("generate")
            # A replica's ranks hold its memory together: its lead may only start once all are awake, and nobody may
            # sleep before every lead is done.
            self.context.collective.barrier()
            yield report
            self.context.collective.barrier()
        finally:
            self.phases.leave("generate")

    def _synced(self, version: int) -> SyncReport:
        # Every rank must come to the same answer, or some would wait in a collective for the others.
        # A replica's lead speaks for all of its ranks.
        holds = not self.rollout.dispatch_info().is_collect or self.rollout.version() == version
        current = self.context.collective.all_gather_object(holds)
        if all(current):
            return SyncReport(version=version, skipped=True)
        report = self.move(version)
        self.run(self.rollout.reset_prefix_cache())
        return report
