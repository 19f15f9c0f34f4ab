"""Is one checkpoint better than another, or was it luck? Two files of ``rl eval --out`` on the same prompts.

    python examples/gsm8k/compare.py before.jsonl after.jsonl

The same problems are answered by both, so what is drawn again and again is problems, each with both of its answers: the
paired bootstrap. Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapters 8 and 13 (percentiles).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

DRAWS = 10_000
PERCENTILES = (2.5, 97.5)
ROWS_AT_A_TIME = 100


def pass_rates(file: Path) -> dict[int, float]:
    """Prompt -> share of its answers that passed; an answer that is missing did not."""
    passed: dict[int, list[bool]] = defaultdict(list)
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            passed[record["prompt"]].append(bool(record["passed"]))
    return {prompt: sum(answers) / len(answers) for prompt, answers in passed.items()}


def paired_interval(before: np.ndarray, after: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """Mean gain over the problems, and the interval that holds 95 % of its bootstrap draws.

    Args:
        before: [N] pass rates.
        after: [N] of the same problems.
        seed: of the draws.
    """
    gains = after - before
    random = np.random.default_rng(seed)
    means = [
        gains[random.integers(len(gains), size=(ROWS_AT_A_TIME, len(gains)))].mean(axis=1)
        for _ in range(DRAWS // ROWS_AT_A_TIME)
    ]
    low, high = np.percentile(np.concatenate(means), PERCENTILES)
    return float(gains.mean()), float(low), float(high)


def main(argv: list[str] | None = None) -> int:
    """Print the comparison; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args(argv)
    try:
        before, after = pass_rates(options.before), pass_rates(options.after)
    except (OSError, ValueError, KeyError) as error:
        print(f"error: not two files of `rl eval --out`: {error!r}", file=sys.stderr)
        return 2
    if not before or before.keys() != after.keys():
        print(f"error: the files answer {len(before)} and {len(after)} prompts, not the same ones", file=sys.stderr)
        return 2
    rates = [np.array([found[prompt] for prompt in before]) for found in (before, after)]
    gain, low, high = paired_interval(*rates)
    print(
        f"{options.before}: {rates[0].mean():.1%}   {options.after}: {rates[1].mean():.1%}   ({len(before)} problems)"
    )
    verdict = "more than luck" if low > 0 or high < 0 else "may be luck: the interval holds zero"
    print(f"gain {gain:+.1%}, 95 % interval {low:+.1%} to {high:+.1%}: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
