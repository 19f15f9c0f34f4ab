"""The data files of the demonstration, in the forms that ``rl sft`` and ``rl train`` read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rl_demo.problems import Problem, Split
from rl_demo.teacher import taught_answers

DATA_SOURCE: Final = "demo/sums"

SFT_ANSWERS: Final = 3
"""Answers to each problem of the SFT part. With one, the model would learn by heart which teacher answered what."""


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Where the data lie.

    Attributes:
        sft: conversations, a question and a teacher's answer; each question several times.
        rl: questions with their sums, for GRPO.
        held_out: the same form, for validation.
    """

    sft: Path
    rl: Path
    held_out: Path


def write_data(folder: Path, split: Split, seed: int) -> DataFiles:
    """Write the three files.

    Args:
        folder: made if need be.
        split: the problems.
        seed: draws the teacher of each answer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = DataFiles(folder / "sft.jsonl", folder / "rl.jsonl", folder / "held_out.jsonl")
    asked = split.sft * SFT_ANSWERS
    taught = zip(asked, taught_answers(asked, seed), strict=True)
    _write(files.sft, ({"messages": [_user(problem), _assistant(answer)]} for problem, answer in taught))
    _write(files.rl, map(_prompt_row, split.rl))
    _write(files.held_out, map(_prompt_row, split.held_out))
    return files


def _user(problem: Problem) -> dict[str, str]:
    return {"role": "user", "content": problem.question}


def _assistant(answer: str) -> dict[str, str]:
    return {"role": "assistant", "content": answer}


def _prompt_row(problem: Problem) -> dict[str, Any]:
    return {
        "prompt": [_user(problem)],
        "data_source": DATA_SOURCE,
        "reward_model": {"style": "rule", "ground_truth": str(problem.total)},
        "extra_info": {"needs_carry": problem.needs_carry},
    }


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
