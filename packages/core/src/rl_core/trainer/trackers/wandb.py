"""Weights & Biases; honours ``WANDB_MODE=offline`` and the other variables of its client."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wandb

from rl_core.config import redact

if TYPE_CHECKING:
    from rl_core.config import RunTree


class WandbTracker:
    """One run named ``trainer.experiment_name`` in the project ``trainer.project_name``."""

    def __init__(self, config: RunTree) -> None:
        """Start the run; secrets of the configuration are redacted."""
        folder = Path(config.trainer.default_local_dir).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        self._id_file = folder / "wandb_run_id"
        self._config = config
        self._run = self._open()

    def _open(self) -> Any:
        """The run of this folder, found again by the id that its first process left there."""
        if not self._id_file.exists():
            self._id_file.write_text(uuid.uuid4().hex[:8])
        return wandb.init(
            project=self._config.trainer.project_name,
            name=self._config.trainer.experiment_name,
            dir=str(self._id_file.parent),
            config=redact(self._config),
            id=self._id_file.read_text(),
            resume="allow",
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self._run.log(dict(metrics), step=step)

    def log_generations(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """A table of the records."""
        columns = ["input", "output", "gts", "score"]
        rows = [[str(record.get(column)) for column in columns] for record in records]
        self._run.log({"val/generations": wandb.Table(columns=[*columns], data=rows)}, step=step)

    def start(self) -> None:
        """Open a run of its own, not the one that an earlier start left in this folder."""
        self._run.finish()
        self._id_file.unlink()
        self._run = self._open()

    def resume(self, step: int) -> None:
        """The same run goes on; the service keeps the first of two numbers for a step that comes again."""

    def close(self) -> None:
        """End the run."""
        self._run.finish()
