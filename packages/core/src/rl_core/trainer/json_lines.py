"""Files with one JSON object a line that grow with a run: put aside by a new run, shortened by one that goes on."""

from __future__ import annotations

import json
from pathlib import Path


def put_aside(path: Path) -> None:
    """Keep the lines of an earlier run under ``<name>.previous.jsonl``; nothing where there are none."""
    if path.is_file() and path.stat().st_size:
        path.replace(path.with_suffix(".previous.jsonl"))


def keep_up_to(path: Path, step: int) -> None:
    """Keep the lines of steps up to ``step``; a last line that was torn by the end of a process goes too."""
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8").split("\n")
    kept = [line for line in lines[:-1] if json.loads(line)["step"] <= step]
    partial = path.with_suffix(".partial")
    partial.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    partial.replace(path)
