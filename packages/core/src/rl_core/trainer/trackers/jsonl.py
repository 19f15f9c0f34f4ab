"""The numbers of a run as a file: what reports are made from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.trainer.json_text import to_json

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig


class JsonlTracker:
    """``metrics.jsonl`` in the run folder: one strictly valid JSON object a step; NaN and infinities become null."""

    def __init__(self, config: PPOTrainerConfig) -> None:
        """Append to the file of the run folder, which is made if need be."""
        folder = Path(config.trainer.default_local_dir).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "metrics.jsonl"
        self._file = self._path.open("a", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self._file.write(to_json({"step": step} | dict(metrics)) + "\n")
        self._file.flush()

    def log_generations(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Append to ``generations.jsonl`` in the run folder."""
        with self._path.with_name("generations.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(to_json(dict(record)) + "\n" for record in records)

    def resume(self, step: int) -> None:
        """Drop the lines of later steps, so that each step stands there once."""
        self._file.close()
        lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["step"] <= step]
        partial = self._path.with_suffix(".partial")
        partial.write_text("".join(kept), encoding="utf-8")
        partial.replace(self._path)
        self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
