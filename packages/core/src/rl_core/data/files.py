"""Rows of data files, JSON lines, JSON or parquet by suffix, and of Hub data sets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from rl_core.data.hub import is_hub_name, read_hub
from rl_core.errors import DataError

Row = dict[str, Any]

_SUFFIXES: Final = (".jsonl", ".json", ".parquet")


class DataFile(NamedTuple):
    """One entry of ``data.train_files`` or ``data.val_files``."""

    name: str
    """As it was given."""

    rows: list[Row]


class Place(NamedTuple):
    """Where a row stands."""

    file: str
    number: int
    """From 0, within the file."""

    def refused(self, error: Exception) -> DataError:
        """The error of the row, with the file in front."""
        return DataError(f"{self.file}: {error}")


def read_files(files: str | Sequence[str]) -> list[DataFile]:
    """All rows of all files, in order.

    Rows of parquet files and Hub data sets come without the nested fields that are None: they give each row the fields of
    all rows. What JSON holds stays as it is, since nobody but the author writes null there.

    Args:
        files: a path or several; also ``hf://`` names, see ``rl_core.data.hub``.

    Raises:
        DataError: a file is missing, has another suffix, holds something else than records, or all are empty.
    """
    names = [files] if isinstance(files, str) else [str(name) for name in files]
    found = [DataFile(name, _read(name)) for name in names]
    if not any(file.rows for file in found):
        msg = f"no rows in {', '.join(names) or 'an empty list of files'}: nothing to train on"
        raise DataError(msg)
    return found


def read_rows(files: str | Sequence[str]) -> list[Row]:
    """``read_files`` as one list."""
    return [row for file in read_files(files) for row in file.rows]


def without_none(value: Any) -> Any:
    """A copy without the fields of mappings that are None, at any depth; elements of lists all stay."""
    if isinstance(value, Mapping):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [without_none(item) for item in value]
    return value


def plain(value: Any) -> Any:
    """A copy in which arrays are lists and numpy's numbers are Python's, at any depth; bytes and objects stay."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy, as other readers of parquet give nested lists
        return plain(value.tolist())
    return value


def _read(name: str) -> list[Row]:
    path = Path(name).expanduser()
    if is_hub_name(name, path):
        return [{column: without_none(value) for column, value in row.items()} for row in read_hub(name)]
    if not path.is_file():
        raise DataError(_missing(path))
    match path.suffix:
        case ".jsonl":
            lines = _text(path).split("\n")  # not splitlines: JSON may hold other line ends
            rows = [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
        case ".json":
            rows = _parse(_text(path), str(path))
        case ".parquet":
            rows = [{column: without_none(value) for column, value in row.items()} for row in _parquet(path)]
        case suffix:
            msg = f"data file {path} ends in {suffix!r}; known are .jsonl, .json and .parquet"
            raise DataError(msg)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        msg = f"{path} must hold records (one object a row)"
        raise DataError(msg)
    return rows


def _parquet(path: Path) -> list[Row]:
    import pyarrow.parquet  # noqa: PLC0415 - only parquet files need it

    try:
        rows: list[Row] = pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        msg = f"{path} cannot be read as parquet: {error}"
        raise DataError(msg) from error
    return rows


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text: {error}"
        raise DataError(msg) from error


def _missing(path: Path) -> str:
    if not path.parent.is_dir():
        return f"data file {path} does not exist; nor does its folder"
    nearby = sorted(item.name for item in path.parent.glob("*") if item.suffix in _SUFFIXES and item.is_file())
    close = get_close_matches(path.name, nearby, n=3)
    # Those that may be meant come first, so that a long folder does not hide them.
    listed = [*close, *(name for name in nearby if name not in close)]
    return f"data file {path} does not exist; its folder holds {', '.join(listed[:10]) or 'no data files'}"


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        msg = f"{where} is not valid JSON: {error}"
        raise DataError(msg) from error
