"""2,000 answers through the math verifier: a pool of processes against one call after the other in this process.

    python benchmarks/rewards.py

Both score the same answers with the same function, in turns (serial, pool, serial, pool, ...) so that what else the machine
does falls on both. The processes of the pool are started, and the verifier is loaded on both sides, before the clock starts.
Writes benchmarks/results/rewards.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rl_core.contracts.reward import parse_reward
from rl_core.scoring.manager import NaiveRewardManager
from rl_core.scoring.pool import ScorePool
from rl_dataproto import DataProto, jagged_from_rows

RESULTS = Path(__file__).parent / "results" / "rewards.md"


def verifier() -> Any:
    """The math verifier."""
    from rl_rewards.math import compute_score

    return compute_score


class Characters:
    """A tokenizer that costs nothing: one token a character."""

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids))


def answers(number: int) -> list[tuple[str, str]]:
    """(response, ground truth): fractions, roots and sets as models write them, two of three right."""
    made = []
    for n in range(number):
        a, b = 1 + n % 97, 2 + n % 89
        kinds = [
            (rf"So the ratio is $\boxed{{\frac{{{a}}}{{{b}}}}}$.", rf"\frac{{{2 * a}}}{{{2 * b}}}"),
            (rf"Taking roots, the answer is $\boxed{{{a}\sqrt{{{b}}} + {n}}}$.", rf"{n} + {a}\sqrt{{{b}}}"),
            (rf"Hence $x = \boxed{{{a}}}$.", str(a if n % 3 else a + 1)),
            (rf"The solutions are \boxed{{\{{{a}, {b}, {a + b}\}}}}", rf"\{{{b}, {a}, {a + b}\}}"),
        ]
        response, truth = kinds[n % 4]
        made.append(("We work step by step. " * 10 + response, truth if n % 3 else rf"{truth} + 1"))
    return made


def objects(values: list[Any]) -> np.ndarray:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def batch(pairs: list[tuple[str, str]]) -> DataProto:
    return DataProto.from_dict(
        tensors={"responses": jagged_from_rows([list(map(ord, text)) for text, _ in pairs])},
        non_tensors={
            "data_source": objects(["math"] * len(pairs)),
            "reward_model": objects([{"ground_truth": truth} for _, truth in pairs]),
            "uid": objects([f"u{row}" for row in range(len(pairs))]),
        },
    )


def serial(function: Any, rows: DataProto) -> list[float | None]:
    tokenizer, columns = Characters(), rows.non_tensor_batch
    return [
        parse_reward(
            function(
                data_source=columns["data_source"][row],
                solution_str=tokenizer.decode(ids.tolist()),
                ground_truth=columns["reward_model"][row]["ground_truth"],
                extra_info=None,
            )
        ).score
        for row, ids in enumerate(rows.batch["responses"].unbind())
    ]


def manager(function: Any, workers: int) -> NaiveRewardManager:
    settings = SimpleNamespace(timeout=60.0, num_workers=workers, memory_limit_mb=4096, max_concurrent=None)
    config = SimpleNamespace(reward_model=settings, trainer=SimpleNamespace(max_failed_reward_fraction=0.1))
    return NaiveRewardManager(function, Characters(), config)


def measured(function: Any, rows: DataProto) -> tuple[list[Any], float]:
    started = time.perf_counter()
    scores = function(rows)
    return scores, time.perf_counter() - started


def overhead(workers: int, number: int = 5_000) -> float:
    """Microseconds of a score that costs nothing, once the processes run."""
    pool = ScorePool(num_workers=workers, timeout_s=60.0)
    try:
        calls = [(pool.add_function(float), {}, 0)] * number
        for _ in range(2):
            started = time.perf_counter()
            for job in pool.submit(calls):
                job.future.result()
        return (time.perf_counter() - started) / number * 1e6
    finally:
        pool.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=2_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    function, rows = verifier(), batch(answers(options.answers))
    pooled = manager(function, options.workers)
    try:
        warm = batch(answers(200))
        serial(function, warm)
        pooled.collect(warm)
        times: dict[str, list[float]] = {"serial": [], "pool": []}
        for turn in range(options.rounds):
            one, seconds = measured(lambda rows: serial(function, rows), rows)
            times["serial"].append(seconds)
            many, seconds = measured(lambda rows: [result.score for result in pooled.collect(rows)], rows)
            times["pool"].append(seconds)
            if one != many:
                msg = "pool and serial disagree"
                raise SystemExit(msg)
            print(f"round {turn + 1}: serial {times['serial'][-1]:.2f} s, pool {seconds:.2f} s", flush=True)
    finally:
        pooled.close()
    write(options, times, overhead(options.workers))


def write(options: argparse.Namespace, times: dict[str, list[float]], microseconds: float) -> None:
    ratios = [one / many for one, many in zip(times["serial"], times["pool"], strict=True)]
    lines = [
        "# Rewards: a pool of processes against one call after the other",
        "",
        f"`python benchmarks/rewards.py`: {options.answers:,} answers, {options.rounds} rounds in turns, "
        f"{options.workers} processes on {os.cpu_count()} cores, Python {platform.python_version()}.",
        "",
        "| | median s | least | most |",
        "|---|---|---|---|",
        *(
            f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f} |"
            for name, values in times.items()
        ),
        f"| serial / pool | {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |",
        "",
        f"A score that costs nothing: {microseconds:.0f} µs in the running pool.",
    ]
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
