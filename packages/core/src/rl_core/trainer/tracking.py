"""Where the numbers of a run go. Trackers are found by name (``trainer.logger``)."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.plugins import Registry


class Tracker(Protocol):
    """One destination of metrics."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the numbers of ``step``."""

    def resume(self, step: int) -> None:
        """The run goes on after ``step``; what was recorded for later steps will come again."""

    def close(self) -> None:
        """Finish writing."""


class ConsoleTracker:
    """One line a step: what a person watches. The whole set of numbers is in the JSON lines."""

    WATCHED = (
        ("reward", "critic/score/mean"),
        ("kl", "actor/ppo_kl"),
        ("gap", "training/logprob_gap/mean"),
        ("pg_loss", "actor/pg_loss"),
        ("vf_loss", "critic/vf_loss"),
        ("grad", "actor/grad_norm"),
        ("len", "response_length/mean"),
        ("s", "timing_s/step"),
    )

    def __init__(self, config: PPOTrainerConfig, stream: TextIO | None = None) -> None:
        """Write to ``stream``, by default standard output."""
        self._stream = stream or sys.stdout

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """See ``Tracker``."""
        shown = [f"{label} {metrics[name]:.4g}" for label, name in self.WATCHED if name in metrics]
        validation = [f"{name} {value:.4g}" for name, value in metrics.items() if name.startswith("val-core/")]
        print(f"step {step}: " + "  ".join(shown + validation), file=self._stream, flush=True)

    def resume(self, step: int) -> None:
        """Say so."""
        print(f"resumed after step {step}", file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing is left to write."""


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


class Trackers:
    """Several trackers as one."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        """Store them."""
        self._trackers = list(trackers)

    @classmethod
    def from_config(cls, config: PPOTrainerConfig, registry: Registry) -> Trackers:
        """The trackers that ``trainer.logger`` names."""
        classes = [cast("type[Any]", registry.load("tracker", name)) for name in config.trainer.logger]
        return cls([tracker_class(config) for tracker_class in classes])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record in each."""
        for tracker in self._trackers:
            tracker.log(step, metrics)

    def resume(self, step: int) -> None:
        """Tell each."""
        for tracker in self._trackers:
            tracker.resume(step)

    def close(self) -> None:
        """Close each."""
        for tracker in self._trackers:
            tracker.close()


def to_json(value: Any) -> str:
    """One line of JSON that every strict parser reads, whatever numbers and texts are in it."""
    return json.dumps(_plain(value), allow_nan=False, ensure_ascii=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # numpy and torch, scalars and arrays
        return _plain(value.tolist())
    return str(value)
