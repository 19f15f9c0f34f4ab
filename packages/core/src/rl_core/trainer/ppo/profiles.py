"""Recording the steps that ``global_profiler`` names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig


class StepProfiles:
    """Starts and stops the recordings of all worker groups."""

    def __init__(self, config: PPOTrainerConfig, groups: Sequence[Any]) -> None:
        """Store the arguments.

        Args:
            config: of the run.
            groups: worker groups; a group that plays several roles may stand here several times.
        """
        profiler = config.global_profiler
        self._steps = frozenset(profiler.steps or ()) if profiler.tool is not None else frozenset()
        self._joins = profiler.profile_continuous_steps
        self._folder = profiler.save_path or str(Path(config.trainer.default_local_dir).expanduser() / "profile")
        self._groups = list({id(group): group for group in groups if group is not None}.values())
        self._first: int | None = None

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Around one step: it is recorded if it is meant, alone or with its neighbours."""
        if number in self._steps and self._first is None:
            self._first = number
            for group in self._groups:
                group.start_profile()
        try:
            yield
        finally:
            if self._first is not None and not (self._joins and number + 1 in self._steps):
                self._write(self._first, number)

    def _write(self, first: int, last: int) -> None:
        label = f"step_{first}" if first == last else f"step_{first}_to_{last}"
        self._first = None
        for group in self._groups:
            group.stop_profile(self._folder, label)
