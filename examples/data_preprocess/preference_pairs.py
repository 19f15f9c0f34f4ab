"""Pairs of a better and a worse answer as parquet files, for training a reward model.

    python examples/data_preprocess/preference_pairs.py --local_dir ~/data/pairs [--local_dataset_path DIR]

Takes rows whose `chosen` and `rejected` are lists of messages, or texts in which turns open with `Human:` and `Assistant:`
behind an empty line. Written are `chosen` and `rejected`, two conversations that differ from one point on and end with the
assistant.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

import sources

HUB_NAME = "Anthropic/hh-rlhf"
TURN = re.compile(r"\n\n(Human|Assistant):")
ROLES = {"Human": "user", "Assistant": "assistant"}


def messages(value: Any, where: str) -> list[dict[str, str]]:
    """A conversation that ends with the assistant.

    Raises:
        SourceError: it is none.
    """
    if isinstance(value, str):
        _, *pieces = TURN.split(value if value.startswith("\n\n") else f"\n\n{value}")
        value = [
            {"role": ROLES[role], "content": text.strip()} for role, text in zip(pieces[::2], pieces[1::2], strict=True)
        ]
    found = [{"role": turn["role"], "content": turn["content"]} for turn in value or ()]
    if not found or found[-1]["role"] != "assistant":
        msg = f"{where} must be a conversation that ends with the assistant; found {str(value)[:80]!r}"
        raise sources.SourceError(msg)
    return found


def to_row(split: str, index: int, item: sources.Row) -> sources.Row | None:
    """One pair; None where both answers are the same, which says nothing."""
    sides = [
        messages(sources.field(item, side, split, index), f"{split} row {index}: {side}")
        for side in ("chosen", "rejected")
    ]
    if sides[0] == sides[1]:
        return None
    return {"chosen": sides[0], "rejected": sides[1], "extra_info": {"split": split, "index": index}}


def work(options: argparse.Namespace) -> None:
    """Write one file a split."""
    for split in options.split:
        items = sources.read_split(options.name, split, options.local_dataset_path)
        rows = [to_row(split, index, item) for index, item in enumerate(items)]
        kept = [row for row in rows if row is not None]
        if len(kept) < len(rows):
            print(f"{len(rows) - len(kept)} of {len(rows)} {split} rows have the same answer twice and are left out")
        sources.write(kept, options.local_dir, split)


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = sources.parser_for(__doc__ or "")
    sources.add_source(parser, HUB_NAME)
    parser.add_argument("--name", default=HUB_NAME, help="another Hub data set with chosen and rejected")
    parser.add_argument("--split", nargs="+", default=["train", "test"], help="splits to write")
    return sources.run(work, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
