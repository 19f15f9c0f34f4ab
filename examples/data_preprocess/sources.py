"""What the scripts of this folder share: where rows come from, how they are written, how they fail."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

Row = dict[str, Any]


class SourceError(Exception):
    """The rows cannot be had, or hold something else than expected; the message says what to do."""


def parser_for(text: str) -> argparse.ArgumentParser:
    """The options that all scripts have; `text` is the script's own."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--local_dir", "--local_save_dir", required=True, type=Path, help="folder to write to")
    return parser


def add_source(parser: argparse.ArgumentParser, what: str) -> None:
    """The option for a copy of a Hub data set."""
    parser.add_argument(
        "--local_dataset_path", type=Path, help=f"file, or folder with one file a split, instead of the Hub's {what}"
    )


def read_split(name: str, split: str, local: Path | None, config: str | None = None) -> list[Row]:
    """Rows of one split of a Hub data set, or of a local copy: a file, or `<split>.jsonl|json|parquet` in a folder.

    Raises:
        SourceError: they cannot be had.
    """
    if local is not None:
        return _read_file(_file_of(local.expanduser(), split))
    try:
        from datasets import load_dataset  # noqa: PLC0415 - only the Hub needs it

        return [dict(row) for row in load_dataset(name, config, split=split)]
    except Exception as error:  # the library raises its own kinds and the network's
        msg = (
            f"{name} could not be loaded from the Hub or its cache ({type(error).__name__}: {error}). Without a network, "
            "download its files elsewhere and give them: --local_dataset_path PATH"
        )
        raise SourceError(msg) from error


def field(row: Mapping[str, Any], name: str, split: str, number: int) -> Any:
    """A column that must be there.

    Raises:
        SourceError: it is not.
    """
    if row.get(name) is None:
        msg = f"{split} row {number} has no {name!r}; it has {', '.join(sorted(row))}"
        raise SourceError(msg)
    return row[name]


def write(rows: Sequence[Row], folder: Path, name: str) -> None:
    """Write `<name>.parquet` into the folder.

    Raises:
        SourceError: there are no rows.
    """
    if not rows:
        msg = f"no rows for {name}: nothing to write"
        raise SourceError(msg)
    path = folder.expanduser() / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    print(f"wrote {len(rows)} rows to {path}")


def run(work: Callable[[argparse.Namespace], None], parser: argparse.ArgumentParser, argv: list[str] | None) -> int:
    """The exit code of a script: 2 and one line for what a user can put right."""
    options = parser.parse_args(argv)
    try:
        work(options)
    except (SourceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _file_of(path: Path, split: str) -> Path:
    if path.is_file():
        return path
    for suffix in ("jsonl", "json", "parquet"):
        if (path / f"{split}.{suffix}").is_file():
            return path / f"{split}.{suffix}"
    msg = f"--local_dataset_path {path} is no file, nor a folder with {split}.jsonl, {split}.json or {split}.parquet"
    raise SourceError(msg)


def _read_file(path: Path) -> list[Row]:
    try:
        if path.suffix == ".parquet":
            return pyarrow.parquet.read_table(path).to_pylist()
        text = path.read_text(encoding="utf-8")
        rows = _records(text) if path.suffix == ".jsonl" else json.loads(text)
    except (ValueError, pyarrow.ArrowException) as error:
        msg = f"{path} cannot be read: {error}"
        raise SourceError(msg) from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        msg = f"{path} must hold records, one object a row"
        raise SourceError(msg)
    return rows


def _records(text: str) -> Iterable[Any]:
    return [json.loads(line) for line in text.split("\n") if line.strip()]
