"""Weights & Biases; honours ``WANDB_MODE=offline`` and the other variables of its client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wandb

from rl_core.config import redact

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig


class WandbTracker:
    """One run named ``trainer.experiment_name`` in the project ``trainer.project_name``."""

    def __init__(self, config: PPOTrainerConfig) -> None:
        """Start the run; secrets of the configuration are redacted."""
        folder = Path(config.trainer.default_local_dir).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=config.trainer.project_name,
            name=config.trainer.experiment_name,
            dir=str(folder),
            config=redact(config),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self._run.log(dict(metrics), step=step)

    def log_generations(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """A table of the records."""
        columns = ["input", "output", "gts", "score"]
        rows = [[str(record.get(column)) for column in columns] for record in records]
        self._run.log({"val/generations": wandb.Table(columns=[*columns], data=rows)}, step=step)

    def resume(self, step: int) -> None:
        """Nothing to drop: a step that comes again is ignored by the service."""

    def close(self) -> None:
        """End the run."""
        self._run.finish()
