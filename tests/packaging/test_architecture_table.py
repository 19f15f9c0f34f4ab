"""ARCHITECTURE.md's table "path in the walkthrough -> file here" points at files that exist.

A room that belongs to later work says so with "with issue: <name>", and then must not exist already.
"""

from __future__ import annotations

import re

import pytest
from source_tree import ROOT

TITLE = "## Where the walkthrough's files are"
LATER = "with issue: "


def rows(text: str) -> list[tuple[str, str]]:
    """(left, right) cells of the table below the title."""
    section = text.split(TITLE, 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return [(left, right) for left, right, *_ in cells]


def problems(right: str, exists) -> list[str]:
    """What is wrong with one right-hand cell: its parts are separated by `;`, each names paths in backticks."""
    found = []
    for part in right.split(";"):
        paths = re.findall(r"`([^`]+)`", part)
        if not paths:
            found.append(f"no path in {part!r}")
        for path in paths:
            if LATER in part and exists(path):
                found.append(f"{path} is announced for later but is there")
            if LATER not in part and not exists(path):
                found.append(f"{path} does not exist")
    return found


CORE = ROOT / "packages/core/src/rl_core"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
TABLE = rows(TEXT)


@pytest.mark.parametrize(("left", "right"), TABLE, ids=[left for left, _ in TABLE])
def test_row(left, right):
    assert problems(right, lambda path: (ROOT / path).exists()) == []


@pytest.mark.parametrize(
    "path",
    [
        "verl/trainer/main_ppo.py",
        "verl/trainer/ppo/ray_trainer.py",
        "verl/single_controller/",
        "verl/protocol.py",
        "verl/workers/fsdp_workers.py",
        "verl/workers/megatron_workers.py",
        "verl/workers/sharding_manager/",
        "verl/trainer/ppo/core_algos.py",
        "verl/trainer/config/ppo_trainer.yaml",
        "recipe/",
        "examples/data_preprocess/gsm8k.py",
    ],
)
def test_every_landmark_of_the_walkthrough_has_a_row(path):
    assert any(f"`{path}`" in left for left, _ in TABLE)


def test_files_named_along_the_step_exist():
    section = TEXT.split("## One step, followed through the files", 1)[1].split("\n## ", 1)[0]
    named = set(re.findall(r"`((?!packages/)[a-z_]+/[\w./]*)`", section))
    assert len(named) > 15
    assert [path for path in sorted(named) if not (CORE / path).exists()] == []


def test_every_room_of_core_is_in_the_table_of_layers():
    cells = re.findall(r"^\| (`.+?) \|", TEXT.split("## One step", 1)[0], re.MULTILINE)
    told = {name.split("/")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    there = {path.name for path in CORE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert told == there - {"__init__.py", "_version.py", "protocol.py"}


def test_faults_are_seen():
    assert problems("`a.py` and `b.py`", {"a.py"}.__contains__) == ["b.py does not exist"]
    assert problems("`a.py`; `b.py` (with issue: x)", {"a.py"}.__contains__) == []
    assert problems("`b.py` (with issue: x)", {"b.py"}.__contains__) == ["b.py is announced for later but is there"]
    assert problems("somewhere", {"b.py"}.__contains__) == ["no path in 'somewhere'"]
