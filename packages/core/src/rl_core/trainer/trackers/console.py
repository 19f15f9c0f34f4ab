"""What a person watches while a run goes on: one line a step, and a progress bar where the terminal can show one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from rl_core.config import RunTree

WATCHED = (
    ("reward", "critic/score/mean"),
    ("kl", "actor/ppo_kl"),
    ("gap", "training/logprob_gap/mean"),
    ("pg_loss", "actor/pg_loss"),
    ("vf_loss", "critic/vf_loss"),
    ("loss", "train/loss"),
    ("val_loss", "val/loss"),
    ("val_ppl", "val/perplexity"),
    ("lr", "train/lr"),
    ("grad", "train/grad_norm"),
    ("grad", "actor/grad_norm"),
    ("len", "response_length/mean"),
    ("tok/s", "perf/throughput"),
)
PHASES = (
    "gen",
    "old_log_prob",
    "ref",
    "values",
    "reward",
    "adv",
    "update_critic",
    "update_actor",
    "update",
    "testing",
    "save_checkpoint",
)
_SHOWN_CHARACTERS = 300


class ConsoleTracker:
    """One line a step; the whole set of numbers is in the JSON lines."""

    def __init__(self, config: RunTree, stream: TextIO | None = None) -> None:
        """Write to ``stream``, by default standard output."""
        self._console = Console(file=stream or sys.stdout, highlight=False, soft_wrap=True, markup=False)
        self._progress: Progress | None = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        shown = [f"{label} {metrics[name]:.4g}" for label, name in WATCHED if name in metrics]
        times = [
            f"{name} {metrics[f'timing_s/{name}']:.2g}s"
            for name in PHASES
            if metrics.get(f"timing_s/{name}", 0) >= 0.01
        ]
        if "timing_s/step" in metrics:
            shown.append(
                f"{metrics['timing_s/step']:.3g}s ({', '.join(times)})" if times else f"{metrics['timing_s/step']:.3g}s"
            )
        shown += [f"{name} {value:.4g}" for name, value in metrics.items() if name.startswith("val-core/")]
        self._console.print(f"step {step}: " + "  ".join(shown))
        self._advance(step, metrics)

    def _advance(self, step: int, metrics: Mapping[str, float]) -> None:
        total = metrics.get("training/total_steps")
        if total is None or not self._console.is_terminal:
            return
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._task = self._progress.add_task("steps", total=total)
            self._progress.start()
        self._progress.update(self._task, completed=step)

    def log_generations(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """See ``Tracker``."""
        for record in records:
            text = str(record["output"]).replace("\n", "\\n")
            cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + " …"
            self._console.print(f"  step {step} score {record['score']}: {cut}")

    def start(self) -> None:
        """Nothing to do."""

    def resume(self, step: int) -> None:
        """Say so."""
        self._console.print(f"resumed after step {step}")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._progress is not None:
            self._progress.stop()
