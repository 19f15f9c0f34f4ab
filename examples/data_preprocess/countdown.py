"""Countdown, made up here: reach a target with given numbers, each used at most once.

    python examples/data_preprocess/countdown.py --local_dir ~/data/countdown --train_size 10000 [--seed 0]

Every puzzle has a solution, since its target is worked out from its numbers. Training and test share no puzzle.
"""

from __future__ import annotations

import argparse
import random
import sys

import sources

DATA_SOURCE = "countdown"
LARGEST_TARGET = 100


def puzzle(draw: random.Random, count: int) -> tuple[list[int], int]:
    """Numbers and a target that they reach with `+ - * /`, whole and positive at every step."""
    while True:
        numbers = [draw.randint(1, 99) for _ in range(count)]
        left = [*numbers]
        while len(left) > 1:
            a, b = (left.pop(draw.randrange(len(left))) for _ in range(2))
            results = [a + b, abs(a - b), a * b, *([a // b] if a % b == 0 else []), *([b // a] if b % a == 0 else [])]
            left.append(draw.choice([value for value in results if value > 0]))
        if left[0] <= LARGEST_TARGET and left[0] not in numbers:
            return numbers, left[0]


def to_row(split: str, index: int, numbers: list[int], target: int) -> sources.Row:
    """One puzzle in the columns of the trainer's data set."""
    content = (
        f"Using the numbers {numbers}, create an equation that equals {target}. You can use basic arithmetic operations "
        "(+, -, *, /) and each number at most once. Show your work in <think> </think> tags and give the final equation "
        "in <answer> </answer> tags, for example <answer> (1 + 2) / 3 </answer>."
    )
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": content}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": {"target": target, "numbers": numbers}},
        "extra_info": {"split": split, "index": index},
    }


def work(options: argparse.Namespace) -> None:
    """Write `train.parquet` and `test.parquet`."""
    draw = random.Random(options.seed)
    seen: set[tuple[tuple[int, ...], int]] = set()
    for split, size in (("train", options.train_size), ("test", options.test_size)):
        rows: list[sources.Row] = []
        while len(rows) < size:
            numbers, target = puzzle(draw, draw.choice(options.numbers))
            key = (tuple(sorted(numbers)), target)
            if key not in seen:
                seen.add(key)
                rows.append(to_row(split, len(rows), numbers, target))
        sources.write(rows, options.local_dir, split)


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = sources.parser_for(__doc__ or "")
    parser.add_argument("--train_size", type=int, default=10_000, help="puzzles to train on")
    parser.add_argument("--test_size", type=int, default=512, help="puzzles to test with")
    parser.add_argument(
        "--numbers", type=int, nargs="+", default=[3, 4], choices=range(2, 7), help="how many are given"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all puzzles")
    return sources.run(work, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
