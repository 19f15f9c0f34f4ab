"""The numbers of a run as a file: what reports are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.trainer.json_lines import keep_up_to, put_aside
from rl_core.trainer.json_text import to_json

if TYPE_CHECKING:
    from rl_core.config import RunTree


class JsonlTracker:
    """``metrics.jsonl`` in the run folder: one strictly valid JSON object a step; NaN and infinities become null."""

    def __init__(self, config: RunTree) -> None:
        """Append to the file of the run folder, which is made if need be."""
        folder = Path(config.trainer.default_local_dir).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "metrics.jsonl"
        self._generations = folder / "generations.jsonl"
        self._file = self._path.open("a", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        self._file.write(to_json({"step": step} | dict(metrics)) + "\n")
        self._file.flush()

    def log_generations(self, step: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Append to ``generations.jsonl`` in the run folder."""
        with self._generations.open("a", encoding="utf-8") as file:
            file.writelines(to_json(dict(record)) + "\n" for record in records)

    def start(self) -> None:
        """Put the numbers of an earlier run aside, under ``*.previous.N.jsonl``."""
        self._file.close()
        for path in (self._path, self._generations):
            put_aside(path)
        self._file = self._path.open("a", encoding="utf-8")

    def resume(self, step: int) -> None:
        """Drop the lines of later steps, so that each step stands there once."""
        self._file.close()
        for path in (self._path, self._generations):
            keep_up_to(path, step)
        self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
