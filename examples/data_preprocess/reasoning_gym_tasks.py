"""Tasks of the reasoning-gym generators as parquet files that the trainer reads.

    python examples/data_preprocess/reasoning_gym_tasks.py --local_dir ~/data/rg --task chain_sum --train_size 2000 \
        --option min_terms=2 --option max_terms=3

Needs the package reasoning-gym; nothing is downloaded. `--task` may be given several times: each gets as many rows.
"""

from __future__ import annotations

import argparse
import json
import sys

import sources

INSTRUCTION = (
    "Think step by step, then give the final answer, and nothing else, between <answer> and </answer> at the end."
)


def make(task: str, size: int, seed: int, options: dict[str, object]) -> list[sources.Row]:
    """Entries of one generator: `question`, `answer` and `metadata`.

    Raises:
        SourceError: the package is missing, or knows no such task or option.
    """
    try:
        import reasoning_gym  # noqa: PLC0415 - only this function needs it
    except ImportError as error:
        msg = "the package reasoning-gym is missing: pip install reasoning-gym"
        raise sources.SourceError(msg) from error
    try:
        return list(reasoning_gym.create_dataset(task, size=size, seed=seed, **options))
    except (ValueError, TypeError, AssertionError) as error:
        msg = f"reasoning-gym cannot make {task!r} with {options or 'no options'}: {error}"
        raise sources.SourceError(msg) from error


def to_row(task: str, split: str, index: int, entry: sources.Row) -> sources.Row:
    """One task in the columns of the trainer's data set; the whole entry is the ground truth, since its scorer reads it."""
    return {
        "data_source": f"reasoning_gym/{task}",
        "prompt": [{"role": "user", "content": f"{entry['question']}\n{INSTRUCTION}"}],
        "ability": "reasoning",
        "reward_model": {"style": "rule", "ground_truth": json.dumps(entry, default=str)},
        "extra_info": {"split": split, "index": index},
    }


def option(text: str) -> tuple[str, object]:
    """`name=value`, the value in JSON where it is JSON."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        msg = f"{text!r} is not NAME=VALUE"
        raise argparse.ArgumentTypeError(msg)
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def work(options: argparse.Namespace) -> None:
    """Write `train.parquet` and `test.parquet`; the seeds of the two differ."""
    for split, size, seed in (
        ("train", options.train_size, 2 * options.seed),
        ("test", options.test_size, 2 * options.seed + 1),
    ):
        rows = [
            to_row(task, split, index, entry)
            for task in options.task
            for index, entry in enumerate(make(task, size, seed, dict(options.option)))
        ]
        sources.write(rows, options.local_dir, split)


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = sources.parser_for(__doc__ or "")
    parser.add_argument("--task", action="append", required=True, help="name of a generator, such as chain_sum")
    parser.add_argument(
        "--option", action="append", type=option, default=[], metavar="NAME=VALUE", help="of the generator"
    )
    parser.add_argument("--train_size", type=int, default=2_000, help="rows of each task to train on")
    parser.add_argument("--test_size", type=int, default=200, help="rows of each task to test with")
    parser.add_argument("--seed", type=int, default=0, help="of the generators")
    return sources.run(work, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
