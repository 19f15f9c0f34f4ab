"""Short runs of ``rl rm`` through its own entry point, on the fakes or on a tiny real model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_core.trainer.rm import main
from sft_runs import overrides, read_metrics, write_rows


def pairs(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Answers with letters of the first half of the alphabet are better; lengths differ."""
    return [_pair(number) for number in range(start, start + count)]


def _pair(number: int) -> dict[str, Any]:
    good, bad = ("abcdefghijklm"[number % 13], "nopqrstuvwxyz"[number * 5 % 13])
    question = {"role": "user", "content": f"{number}?"}
    better = {"role": "assistant", "content": good * (2 + number % 3)}
    worse = {"role": "assistant", "content": bad * (2 + number % 4)}
    return {"chosen": [question, better], "rejected": [question, worse]}


def train_scorer(folder: Path, *more: str, rows: int = 12) -> list[dict[str, Any]]:
    """Train on ``rows`` pairs, validate on five others; the metrics of each step."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "train.jsonl", pairs(rows))
    write_rows(folder / "val.jsonl", pairs(5, start=400))
    assert main(overrides(folder, *more)) == 0
    return read_metrics(folder)
