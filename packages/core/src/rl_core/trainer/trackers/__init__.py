"""Where the numbers of a run go. Trackers are found by name (``trainer.logger``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from rl_core.config import RunTree
    from rl_core.plugins import Registry


class Tracker(Protocol):
    """One destination of metrics."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the numbers of ``step``."""

    def log_generations(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Show some validation answers of ``step`` (``rl_core.trainer.ppo.dumps.rollout_records``)."""

    def start(self) -> None:
        """The run starts anew; what an earlier one left in the same place is not part of it."""

    def resume(self, step: int) -> None:
        """The run goes on after ``step``; what was recorded for later steps will come again."""

    def close(self) -> None:
        """Finish writing."""


class Trackers:
    """Several trackers as one."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        """Store them."""
        self._trackers = list(trackers)

    @classmethod
    def from_config(cls, config: RunTree, registry: Registry) -> Trackers:
        """The trackers that ``trainer.logger`` names."""
        classes = [cast("type[Any]", registry.load("tracker", name)) for name in config.trainer.logger]
        return cls([tracker_class(config) for tracker_class in classes])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record in each."""
        for tracker in self._trackers:
            tracker.log(step, metrics)

    def log_generations(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Show in each."""
        for tracker in self._trackers:
            tracker.log_generations(step, records)

    def start(self) -> None:
        """Tell each."""
        for tracker in self._trackers:
            tracker.start()

    def resume(self, step: int) -> None:
        """Tell each."""
        for tracker in self._trackers:
            tracker.resume(step)

    def close(self) -> None:
        """Close each."""
        for tracker in self._trackers:
            tracker.close()
