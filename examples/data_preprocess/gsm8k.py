"""GSM8K as parquet files that the trainer reads.

    python examples/data_preprocess/gsm8k.py --local_dir ~/data/gsm8k [--source DIR] [--sft]

``--source`` is a folder with ``train.jsonl`` and ``test.jsonl`` as the authors publish them (``question``, ``answer``).
Without it the data set comes from the Hugging Face Hub or its local cache. ``--sft`` also writes the solutions of the
training split as conversations for ``rl sft``: ``sft_train.parquet``, and ``sft_val.parquet`` with the last 256 of them,
at most a tenth.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

DATA_SOURCE = "openai/gsm8k"
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
MAX_HELD_OUT = 256
CALCULATION = re.compile(r"<<[^<>]*>>")
"""What the authors' calculator computed, between the words; a model cannot call it."""


def to_row(split: str, index: int, question: str, answer: str) -> dict[str, Any]:
    """One problem in the columns of the trainer's data set."""
    _, marker, final = answer.rpartition("#### ")
    if not marker:
        msg = f"{split} row {index}: the answer has no '#### ' before its number: {answer[-80:]!r}"
        raise ValueError(msg)
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": f"{question} {INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": final.strip().replace(",", "")},
        "extra_info": {"split": split, "index": index, "question": question, "answer": answer},
    }


def to_conversation(question: str, answer: str) -> dict[str, Any]:
    """The prompt of ``to_row`` with the authors' solution as its answer."""
    solution = CALCULATION.sub("", answer).strip()
    return {
        "messages": [
            {"role": "user", "content": f"{question} {INSTRUCTION}"},
            {"role": "assistant", "content": solution},
        ]
    }


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """One parquet file."""
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    print(f"wrote {len(rows)} rows to {path}")


def read_split(split: str, source: Path | None) -> Iterable[Mapping[str, str]]:
    """The problems of one split; see the module's text for where they come from."""
    if source is not None:
        path = source / f"{split}.jsonl"
        if not path.is_file():
            msg = f"--source {source} has no {path.name}; it needs train.jsonl and test.jsonl with question and answer"
            raise FileNotFoundError(msg)
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    try:
        from datasets import load_dataset  # noqa: PLC0415 - only needed without --source

        return load_dataset(DATA_SOURCE, "main", split=split)
    except (ImportError, OSError) as error:
        msg = (
            f"{DATA_SOURCE} could not be loaded from the Hub or its cache ({error}). Without a network, download the two "
            "files of the data set elsewhere and give their folder: --source DIR"
        )
        raise ConnectionError(msg) from error


def main(argv: list[str] | None = None) -> int:
    """Write ``train.parquet`` and ``test.parquet``; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--local_dir", "--local_save_dir", required=True, type=Path, help="folder to write to")
    parser.add_argument(
        "--source", "--local_dataset_path", type=Path, help="folder with train.jsonl and test.jsonl, instead of the Hub"
    )
    parser.add_argument("--sft", action="store_true", help="also write conversations for `rl sft`")
    options = parser.parse_args(argv)
    folder = options.local_dir.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for split in ("train", "test"):
            problems = list(read_split(split, options.source and options.source.expanduser()))
            rows = [to_row(split, index, item["question"], item["answer"]) for index, item in enumerate(problems)]
            write_rows(folder / f"{split}.parquet", rows)
            if options.sft and split == "train":
                conversations = [to_conversation(item["question"], item["answer"]) for item in problems]
                edge = len(conversations) - min(MAX_HELD_OUT, len(conversations) // 10)
                write_rows(folder / "sft_train.parquet", conversations[:edge])
                write_rows(folder / "sft_val.parquet", conversations[edge:])
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyError as error:
        print(f"error: a row has no {error}; the published files have question and answer", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
