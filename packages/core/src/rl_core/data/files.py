"""Rows of a data file: JSON lines, JSON or parquet, by suffix."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_core.errors import DataError

Row = dict[str, Any]


def read_rows(files: str | Sequence[str]) -> list[Row]:
    """All rows of all files, in order.

    Rows of parquet files come without the nested fields that are None: the file gives each row the fields of all rows.
    What JSON holds stays as it is, since nobody but the author writes null there.

    Raises:
        DataError: a file is missing, has another suffix, holds something else than records, or all are empty.
    """
    paths = [files] if isinstance(files, str) else list(files)
    rows = [row for path in paths for row in _read(Path(path).expanduser())]
    if not rows:
        msg = f"no rows in {', '.join(map(str, paths)) or 'an empty list of files'}: nothing to train on"
        raise DataError(msg)
    return rows


def without_none(value: Any) -> Any:
    """A copy without the fields of mappings that are None, at any depth; elements of lists all stay."""
    if isinstance(value, Mapping):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [without_none(item) for item in value]
    return value


def _read(path: Path) -> list[Row]:
    if not path.is_file():
        nearby = sorted(item.name for item in path.parent.glob("*") if item.is_file()) if path.parent.is_dir() else []
        msg = f"data file {path} does not exist; " + (
            f"its folder holds {', '.join(nearby[:10]) or 'no files'}"
            if path.parent.is_dir()
            else "nor does its folder"
        )
        raise DataError(msg)
    if path.suffix == ".jsonl":
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: JSON may hold other line ends
        rows = [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    elif path.suffix == ".json":
        rows = _parse(path.read_text(encoding="utf-8"), str(path))
    elif path.suffix == ".parquet":
        import pyarrow.parquet  # noqa: PLC0415 - only parquet files need it

        rows = [
            {column: without_none(value) for column, value in row.items()}
            for row in pyarrow.parquet.read_table(path).to_pylist()
        ]
    else:
        msg = f"data file {path} ends in {path.suffix!r}; known are .jsonl, .json and .parquet"
        raise DataError(msg)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        msg = f"{path} must hold records (one object a row)"
        raise DataError(msg)
    return rows


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        msg = f"{where} is not valid JSON: {error}"
        raise DataError(msg) from error
