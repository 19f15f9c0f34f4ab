"""Short runs of ``rl sft`` through its own entry point, on the fakes or on a tiny real model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rl_core.trainer.sft import main


def conversations(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Sums with their results; every third goes on with a second question."""
    return [{"messages": _turns(number)} for number in range(start, start + count)]


def _turns(number: int) -> list[dict[str, str]]:
    turns = [
        {"role": "user", "content": f"{number}+1="},
        {"role": "assistant", "content": str(number + 1)},
    ]
    if number % 3 == 0:
        turns += [{"role": "user", "content": "again"}, {"role": "assistant", "content": f"it is {number + 1}"}]
    return turns


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def overrides(folder: Path, *more: str) -> list[str]:
    """A run in ``folder``, SGD on the fake model in float64; ``more`` wins."""
    chosen = {
        "data.train_files": f"{folder}/train.jsonl",
        "data.val_files": f"{folder}/val.jsonl",
        "data.train_batch_size": "5",
        "model.path": "tiny",
        "engine.strategy": "fake",
        "optim.optimizer": "SGD",
        "optim.lr": "0.5",
        "trainer.runtime": "local",
        "trainer.total_epochs": "10",
        "trainer.total_training_steps": "4",
        "trainer.logger": "[jsonl]",
        "trainer.default_local_dir": f"{folder}/run",
    }
    chosen |= dict(item.split("=", 1) for item in more)
    return [f"{key}={value}" for key, value in chosen.items()]


def fine_tune(folder: Path, *more: str) -> list[dict[str, Any]]:
    """Fine-tune on 12 conversations, and the metrics of each step."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "train.jsonl", conversations(12))
    write_rows(folder / "val.jsonl", conversations(5, start=40))
    assert main(overrides(folder, *more)) == 0
    return read_metrics(folder)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``."""
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def untimed(steps: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Metrics without those that the clock, the machine and the way the work is cut decide."""
    counted = "perf/total_num_tokens"
    left_out = ("timing_s/", "memory/", "perf/")
    return [
        {name: value for name, value in step.items() if name == counted or not name.startswith(left_out)}
        for step in steps
    ]
