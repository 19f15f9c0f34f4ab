"""``parity.jsonl`` of a run: the report of some steps, and of every step whose gap is large."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.trainer.json_lines import keep_up_to, put_aside
from rl_core.trainer.json_text import to_json
from rl_core.trainer.ppo.parity_causes import Setting
from rl_core.trainer.ppo.parity_report import ParityReport, parity_report
from rl_core.trainer.ppo.samples import KEPT_STEPS

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import PPOTrainerConfig

_PRINT_AGAIN = 2.0
"""A gap is shown once more when it has grown so many times over the one that was shown last."""


class ParityFile:
    """Writes the reports of one run, and shows those that a person should see."""

    def __init__(self, config: PPOTrainerConfig, tokenizer: Any, total_steps: int) -> None:
        """Settle what is kept.

        Args:
            config: of the run.
            tokenizer: decodes tokens.
            total_steps: length of the run.
        """
        self._path = Path(config.trainer.default_local_dir).expanduser() / "parity.jsonl"
        self._limits = config.trainer.parity
        self._setting = Setting.of(config)
        self._tokenizer = tokenizer
        self._total_steps = total_steps
        self._every = -(-total_steps // KEPT_STEPS)
        self._shown = 0.0

    @property
    def path(self) -> Path:
        """Where the reports stand."""
        return self._path

    def start(self) -> None:
        """Put the reports of an earlier run aside."""
        put_aside(self._path)

    def resume(self, step: int) -> None:
        """Drop the reports of steps after ``step``; they come again."""
        keep_up_to(self._path, step)

    def take(self, batch: DataProto, step: int, gap: float | None, *, stops: bool) -> ParityReport | None:
        """Report a step: into the file if its turn has come or its gap is large, on the console if it has become large.

        Args:
            batch: as for ``parity_report``.
            step: global step.
            gap: the step's mean gap; None where only older weights drew its tokens.
            stops: whether the run ends with this gap; the error will show the cause then.

        Returns:
            The report, where one was made.
        """
        is_large = gap is not None and not gap <= self._limits.report_above
        is_due = step % self._every == 0 or step in (1, self._total_steps)
        if not (is_large or is_due or stops):
            return None
        report = parity_report(batch, self._setting, self._tokenizer, self._limits.outliers)
        if report is None:
            return None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(to_json(report.record(step)) + "\n")
        if is_large and gap is not None and not stops and not gap <= _PRINT_AGAIN * self._shown:
            self._shown = gap
            print(f"step {step}: log-prob gap between generator and trainer {gap:.3g} nats; see {self._path}")  # noqa: T201
            for line in report.conclusion():
                print(f"  {line}")  # noqa: T201 - where a person looks while it runs
        return report
