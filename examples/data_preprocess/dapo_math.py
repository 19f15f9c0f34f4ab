"""DAPO's competition problems, or files in their form, as parquet files that the trainer reads.

    python examples/data_preprocess/dapo_math.py --local_dir ~/data/dapo [--local_dataset_path FILE]

The published file holds each problem many times; each is written once. Rows have `prompt` (messages) and
`reward_model.ground_truth`; the data source becomes `math_dapo`, whose answers end with `Answer: ...`.
"""

from __future__ import annotations

import argparse
import sys

import sources

HUB_NAME = "BytedTsinghua-SIA/DAPO-Math-17k"
DATA_SOURCE = "math_dapo"


def to_row(index: int, item: sources.Row) -> sources.Row:
    """One problem in the columns of the trainer's data set."""
    prompt = sources.field(item, "prompt", "train", index)
    truth = (sources.field(item, "reward_model", "train", index) or {}).get("ground_truth")
    if truth is None or not str(truth).strip():
        msg = f"train row {index} has no reward_model.ground_truth"
        raise sources.SourceError(msg)
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": turn["role"], "content": turn["content"]} for turn in messages],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(truth).strip()},
        "extra_info": {"split": "train", "index": index},
    }


def distinct(items: list[sources.Row]) -> list[sources.Row]:
    """The first row of each prompt.

    Raises:
        SourceError: two rows of one prompt have different answers.
    """
    rows: dict[str, sources.Row] = {}
    for index, item in enumerate(items):
        row = to_row(index, item)
        first = rows.setdefault(str(row["prompt"]), row)
        if first["reward_model"] != row["reward_model"]:
            msg = (
                f"train rows {first['extra_info']['index']} and {index} have one prompt and two answers, "
                f"{first['reward_model']['ground_truth']!r} and {row['reward_model']['ground_truth']!r}"
            )
            raise sources.SourceError(msg)
    return list(rows.values())


def work(options: argparse.Namespace) -> None:
    """Write `train.parquet`, and `test.parquet` where some rows are to be held back."""
    items = sources.read_split(HUB_NAME, "train", options.local_dataset_path)
    rows = distinct(items)
    print(f"{len(items)} rows, {len(rows)} distinct prompts")
    held = options.test_size
    if held >= len(rows):
        msg = f"--test_size {held} leaves nothing of {len(rows)} rows to train on"
        raise sources.SourceError(msg)
    sources.write(rows[: len(rows) - held], options.local_dir, "train")
    if held:
        sources.write(rows[len(rows) - held :], options.local_dir, "test")


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = sources.parser_for(__doc__ or "")
    sources.add_source(parser, HUB_NAME)
    parser.add_argument("--test_size", type=int, default=0, help="rows from the end to hold back for validation")
    return sources.run(work, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
