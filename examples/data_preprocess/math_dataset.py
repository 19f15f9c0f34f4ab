"""MATH (Hendrycks et al.) as parquet files that the trainer reads.

    python examples/data_preprocess/math_dataset.py --local_dir ~/data/math [--local_dataset_path DIR]

A local copy has `train` and `test` files with `problem` and `solution`; the answer is what the solution boxes last.
"""

from __future__ import annotations

import argparse
import sys

import sources

DATA_SOURCE = "DigitalLearningGmbH/MATH-lighteval"
INSTRUCTION = "Let's think step by step and output the final answer within \\boxed{}."


def boxed(solution: str) -> str | None:
    r"""What the last `\boxed{...}` (or `\fbox`, or `\boxed 2`) holds; None where nothing is boxed or a brace is open."""
    start = max(solution.rfind("\\boxed"), solution.rfind("\\fbox"))
    if start < 0:
        return None
    rest = solution[start:].removeprefix("\\boxed").removeprefix("\\fbox")
    if not rest.lstrip().startswith("{"):
        words = rest.split("$")[0].split()
        return words[0].rstrip(".") if words else None
    rest = rest.lstrip()
    depth = 0
    for place, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[1:place].strip()
    return None


def to_row(split: str, index: int, item: sources.Row) -> sources.Row:
    """One problem in the columns of the trainer's data set."""
    problem, solution = (sources.field(item, name, split, index) for name in ("problem", "solution"))
    answer = boxed(solution)
    if not answer:
        msg = f"{split} row {index}: the solution boxes no answer: {solution[-80:]!r}"
        raise sources.SourceError(msg)
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": f"{problem} {INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"split": split, "index": index, "level": item.get("level"), "type": item.get("type")},
    }


def work(options: argparse.Namespace) -> None:
    """Write `train.parquet` and `test.parquet`."""
    for split in ("train", "test"):
        items = sources.read_split(DATA_SOURCE, split, options.local_dataset_path)
        sources.write([to_row(split, index, item) for index, item in enumerate(items)], options.local_dir, split)


def main(argv: list[str] | None = None) -> int:
    """The exit code."""
    parser = sources.parser_for(__doc__ or "")
    sources.add_source(parser, DATA_SOURCE)
    return sources.run(work, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
