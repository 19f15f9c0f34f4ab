"""Event files for TensorBoard, below ``tensorboard/`` in the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.tensorboard import SummaryWriter

if TYPE_CHECKING:
    from rl_core.config import RunTree


class TensorboardTracker:
    """One scalar a metric."""

    def __init__(self, config: RunTree) -> None:
        """Open an event file."""
        self._folder = Path(config.trainer.default_local_dir).expanduser() / "tensorboard"
        self._writer = SummaryWriter(str(self._folder))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def log_generations(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """One text a record."""
        for number, record in enumerate(records):
            text = f"score {record['score']}\n\n**prompt**\n\n{record['input']}\n\n**response**\n\n{record['output']}"
            self._writer.add_text(f"generations/{number}", text, step)

    def start(self) -> None:
        """Nothing to do."""

    def resume(self, step: int) -> None:
        """Hide what was recorded after ``step``."""
        self._writer.close()
        self._writer = SummaryWriter(str(self._folder), purge_step=step + 1)

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()
