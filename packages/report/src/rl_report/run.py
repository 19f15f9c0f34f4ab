"""A run folder as data: its numbers, samples, configuration and environment, and what was odd about reading them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from rl_core.errors import DataError

from rl_report.text import printable

METRICS: Final = "metrics.jsonl"
SAMPLES: Final = "samples.jsonl"
CONFIG: Final = "config.yaml"
ENVIRONMENT: Final = "environment.json"


@dataclass(frozen=True, slots=True)
class Sample:
    """One response that a run kept. Its texts are free of control characters.

    Attributes:
        step: global step after which, or in which, it was given.
        split: "train", or "val" for an answer to a held-out prompt.
        uid: names the prompt; of a held-out prompt it is the same at every validation.
        prompt: what the model was given.
        response: what it answered.
        ground_truth: the row's reference answer.
        score: the reward; None if it is missing.
        components: further values of the reward.
        finish_reason: why the response ended.
        num_tokens: length of the response.
        error: why the score is missing.
        data_source: of the prompt.
    """

    step: int
    split: str
    uid: str
    prompt: str
    response: str
    ground_truth: Any = None
    score: float | None = None
    components: Mapping[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    num_tokens: int | None = None
    error: str | None = None
    data_source: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """One number over the steps that have it.

    Attributes:
        steps: ascending.
        values: one for each step, all finite.
    """

    steps: tuple[int, ...]
    values: tuple[float, ...]

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def first(self) -> float:
        """Value of the first step."""
        return self.values[0]

    @property
    def last(self) -> float:
        """Value of the last step."""
        return self.values[-1]


@dataclass(frozen=True, slots=True)
class Run:
    """What a run folder holds.

    Attributes:
        folder: where it is.
        rows: step -> name -> number, steps ascending; a number that was not finite is None.
        samples: in the order of the file, each once.
        config: the resolved configuration; empty where the folder has none.
        config_text: the same as the file's text, secrets redacted as they are there.
        environment: versions, plugins, state of the code, command; empty where the folder has none.
        checkpoints: steps of the complete ones.
        notes: what a reader of the report should know about the files.
    """

    folder: Path
    rows: Mapping[int, Mapping[str, float | None]]
    samples: tuple[Sample, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    config_text: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)
    checkpoints: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all numbers, sorted."""
        return tuple(sorted({name for row in self.rows.values() for name in row}))

    def series(self, name: str) -> Series:
        """The finite values of one number; empty where the run has none."""
        found = [(step, row[name]) for step, row in self.rows.items() if row.get(name) is not None]
        return Series(tuple(step for step, _ in found), tuple(float(value) for _, value in found if value is not None))

    def setting(self, path: str) -> Any:
        """A value of the configuration by its dotted path; None where it is not set."""
        value: Any = self.config
        for part in path.split("."):
            if not isinstance(value, Mapping):
                return None
            value = value.get(part)
        return value


def load_run(path: str | Path) -> Run:
    """Read a run folder, of ``rl train``, ``rl sft`` or ``rl rm``, finished or not.

    Args:
        path: the folder (``trainer.default_local_dir``).

    Raises:
        DataError: it is no run folder, it has no numbers yet, or a line in the middle of a file is broken.
    """
    folder = Path(path).expanduser()
    _require_run_folder(folder)
    notes: list[str] = []
    config_text = _text(folder / CONFIG, notes)
    rows = _rows(folder, notes)
    return Run(
        folder=folder,
        rows=rows,
        samples=_samples(folder, notes),
        config=_config(folder / CONFIG, config_text),
        config_text=printable(config_text),
        environment=_environment(folder / ENVIRONMENT, notes),
        checkpoints=_checkpoints(folder),
        notes=tuple(notes),
    )


def _require_run_folder(folder: Path) -> None:
    if not folder.exists():
        msg = f"{folder} does not exist; give the run folder (trainer.default_local_dir)."
        raise DataError(msg)
    if not folder.is_dir():
        msg = f"{folder} is a file; give the run folder that holds it."
        raise DataError(msg)
    if any((folder / name).is_file() for name in (METRICS, CONFIG)):
        return
    inside = sorted(found.parent for pattern in ("*", "*/*", "*/*/*") for found in folder.glob(f"{pattern}/{METRICS}"))
    hint = f"Run folders inside it: {', '.join(map(str, inside[:5]))}." if inside else "It holds no run folder either."
    msg = f"{folder} is not a run folder: it has neither {METRICS} nor {CONFIG}. {hint}"
    raise DataError(msg)


def _rows(folder: Path, notes: list[str]) -> dict[int, dict[str, float | None]]:
    """Numbers by step; of a step that was logged twice the later line counts."""
    path = folder / METRICS
    if not path.is_file() or not path.stat().st_size:
        msg = (
            f"{folder} has no numbers yet: {METRICS} is {'empty' if path.is_file() else 'not there'}. Its first line comes "
            "with the first validation or step; a run whose trainer.logger lacks 'jsonl' never writes one."
        )
        raise DataError(msg)
    rows: dict[int, dict[str, float | None]] = {}
    twice: set[int] = set()
    for number, record in _read_lines(path, notes):
        step = record.pop("step", None)
        if isinstance(step, bool) or not isinstance(step, int):
            msg = f"{path} line {number} has no integer 'step'; it was not written by a run."
            raise DataError(msg)
        values = {name: _number(path, number, name, value) for name, value in _clean(record).items()}
        if all(name.startswith("val") for name in values):
            rows.setdefault(step, {}).update(values)  # a validation on its own adds to its step
            continue
        if step in rows and any(not name.startswith("val") for name in rows[step]):
            twice.add(step)
        rows[step] = values if step in twice else rows.get(step, {}) | values
    if not rows:
        msg = f"{folder} has no numbers yet: the only line of {METRICS} is not complete."
        raise DataError(msg)
    if twice:
        were = "was" if len(twice) == 1 else "were"
        notes.append(
            f"{_steps(twice).capitalize()} {were} logged more than once, as after a resume; the last record counts."
        )
    earlier = sorted(file.name for file in folder.glob("metrics.previous*.jsonl"))
    if earlier:
        names = printable(", ".join(earlier))
        runs = "an earlier run" if len(earlier) == 1 else "earlier runs"
        notes.append(f"The folder also holds the numbers of {runs} ({names}), not shown here.")
    rows = dict(sorted(rows.items()))
    lost = {
        name: [step for step, row in rows.items() if name in row and row[name] is None] for name in _all_names(rows)
    }
    for name, steps in lost.items():
        if steps:
            notes.append(f"{name} was not a finite number in {_steps(steps)}; its curve has a gap there.")
    return rows


def _all_names(rows: Mapping[int, Mapping[str, Any]]) -> list[str]:
    return sorted({name for row in rows.values() for name in row})


def _number(path: Path, line: int, name: str, value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        msg = f"{path} line {line}: {name} is {value!r}, not a number; it was not written by a run."
        raise DataError(msg)
    return value if value is None or math.isfinite(value) else None


def _samples(folder: Path, notes: list[str]) -> tuple[Sample, ...]:
    """Samples; of those with equal step, split, prompt and place among its responses the last counts."""
    path = folder / SAMPLES
    if not path.is_file():
        return ()
    known = set(Sample.__dataclass_fields__)
    groups: dict[tuple[int, str], list[Sample]] = {}
    newest: tuple[int, str] | None = None
    for number, record in _read_lines(path, notes):
        try:
            sample = Sample(**{name: _clean(value) for name, value in record.items() if name in known})
        except TypeError as error:
            msg = f"{path} line {number} is no sample: {error}."
            raise DataError(msg) from error
        key = (sample.step, sample.split)
        if key != newest:
            groups[key] = []  # a step that comes again was taken again, after a resume
            newest = key
        groups[key].append(sample)
    return tuple(sample for group in groups.values() for sample in group)


def _clean(value: Any) -> Any:
    """Plain data whose texts are printable, names included."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {printable(str(name)): _clean(item) for name, item in value.items()} if isinstance(value, Mapping) else value


def _read_lines(path: Path, notes: list[str]) -> list[tuple[int, dict[str, Any]]]:
    """Number and object of each line. The last line may be torn: its process was ended, or writes it just now."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                notes.append(f"The last line of {path.name} is not complete and is left out.")
                break
            msg = (
                f"{path} line {number} of {len(lines) - 1} is not JSON ({error.msg} at column {error.colno}): the file was "
                "edited, or two processes wrote to it. Remove the line, or keep the file from one of them."
            )
            raise DataError(msg) from error
        if not isinstance(record, dict):
            msg = f"{path} line {number} is {line[:40]!r}, not a JSON object; it was not written by a run."
            raise DataError(msg)
        found.append((number, record))
    return found


def _text(path: Path, notes: list[str]) -> str:
    if not path.is_file():
        notes.append(f"The folder has no {path.name}.")
        return ""
    return path.read_text(encoding="utf-8", errors="replace")


def _config(path: Path, text: str) -> Mapping[str, Any]:
    try:
        tree = yaml.safe_load(text) if text else {}
    except yaml.YAMLError as error:
        msg = f"{path} is not YAML: {error}"
        raise DataError(msg) from error
    return _clean(tree) if isinstance(tree, Mapping) else {}


def _environment(path: Path, notes: list[str]) -> Mapping[str, Any]:
    text = _text(path, notes)
    try:
        tree = json.loads(text) if text else {}
    except json.JSONDecodeError as error:
        msg = f"{path} is not JSON ({error.msg} at line {error.lineno}); remove it to have a report without it."
        raise DataError(msg) from error
    return _clean(tree) if isinstance(tree, Mapping) else {}


def _checkpoints(folder: Path) -> tuple[int, ...]:
    found = (re.fullmatch(r"global_step_(\d+)", path.parent.name) for path in folder.glob("*/checkpoint.json"))
    return tuple(sorted(int(match[1]) for match in found if match))


def _steps(steps: Sequence[int] | set[int]) -> str:
    ordered = sorted(steps)
    shown = ", ".join(map(str, ordered[:6]))
    return f"{'step' if len(ordered) == 1 else 'steps'} {shown}" + (
        f" and {len(ordered) - 6} more" if len(ordered) > 6 else ""
    )
