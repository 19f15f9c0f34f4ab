"""Files with one JSON object a line that grow with a run: put aside by a new run, shortened by one that goes on."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path


def unused_name(target: Path) -> Path:
    """A hidden name beside ``target`` that nobody has, for what is to become it."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")


def put_aside(path: Path) -> None:
    """Keep the lines of an earlier run under ``<name>.previous.N.jsonl``, N counting up; nothing where there are none."""
    if path.is_file() and path.stat().st_size:
        pattern = re.compile(rf"{re.escape(path.stem)}\.previous\.(\d+)\.jsonl")
        taken = [int(match[1]) for file in path.parent.iterdir() if (match := pattern.fullmatch(file.name))]
        path.replace(path.with_suffix(f".previous.{max(taken, default=0) + 1}.jsonl"))


def keep_up_to(path: Path, step: int) -> None:
    """Keep the lines of steps up to ``step``; a last line that was torn by the end of a process goes too."""
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8").split("\n")
    kept = [line for line in lines[:-1] if json.loads(line)["step"] <= step]
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    partial.replace(path)
