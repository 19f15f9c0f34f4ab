"""The console of the demonstration: one bar a stage in a terminal, some ten lines where there is none."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rl_demo.files import DATA_SOURCE

if TYPE_CHECKING:
    from rl_core.config import RunTree

ACCURACY: Final = f"val-core/{DATA_SOURCE}/acc/mean@1"
"""Greedy accuracy on the held-out problems, as ``rl train`` logs it."""

SHOWS_WORK: Final = "reward_extra/shows_work/mean"
"""Share of a step's sampled answers that show their work."""

_WATCHED: Final = (
    ("reward", "critic/score/mean", "{:.2f}"),
    ("show their work", SHOWS_WORK, "{:.0%}"),
    ("loss", "train/loss", "{:.3f}"),
)
_LINES: Final = 10


class DemoTracker:
    """Shows what a newcomer looks for; the whole set of numbers is in ``metrics.jsonl``."""

    def __init__(self, config: RunTree, stream: TextIO | None = None) -> None:
        """Write to ``stream``, by default standard output; ``config`` is not used."""
        self._console = Console(file=stream or sys.stdout, highlight=False, markup=False, soft_wrap=True)
        self._progress: Progress | None = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        total = metrics.get("training/total_steps")
        if total is not None:
            self._advance(step, int(total), metrics)
        if ACCURACY in metrics:
            self._console.print(f"     step {step}: {metrics[ACCURACY]:.1%} of the held-out problems right")

    def _advance(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        shown = "   ".join(f"{label} {form.format(metrics[key])}" for label, key, form in _WATCHED if key in metrics)
        if not self._console.is_terminal:
            if step == 1 or step == total or step % max(total // _LINES, 1) == 0:
                seconds = metrics["timing_s/step"]
                self._console.print(f"     step {step} of {total}   {shown}   {seconds:.2f} s a step")
            return
        if self._progress is None:
            columns = (BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            self._progress = Progress(TextColumn("    "), *columns, console=self._console)
            self._task = self._progress.add_task("", total=total)
            self._progress.start()
        self._progress.update(self._task, completed=step, description=shown)

    def log_generations(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Nothing: the report at the end shows answers."""

    def start(self) -> None:
        """Nothing to do."""

    def resume(self, step: int) -> None:
        """Nothing to do: the demonstration never resumes."""

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._progress is not None:
            self._progress.stop()
