"""Batch operations on 4,096 x 1,024 columns, ours beside `verl.protocol.DataProto`.

Each side runs in a process of its own, in its own environment. This script asks them in turn for one timing of one
operation, so a busy moment of the machine hits both; which side goes first changes every round. Both sides build the
same columns, use one thread, and must return the same rows (a digest is compared). Prints a table; with a peer it also
writes benchmarks/results/dataproto.md and exits with 1 when a target is missed.

    OMP_NUM_THREADS=1 python benchmarks/dataproto.py --peer-python PEER/bin/python [--rounds 15]

PEER is an environment with `verl==0.9.1` (installed with --no-deps), `tensordict==0.10.0`, `torch`, `ray`,
`transformers`, `codetiming`, `torchdata`, `pylatexenc`, `orjson`, `hydra-core`, `peft`, `datasets`, `pandas`, `dill`.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.metadata
import json
import math
import os
import pickle
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "dataproto.md"
ROWS, WIDTH, PARTS, TIMES = 4096, 1024, 8, 4
TARGET_SPEEDUP, TARGET_RATIO, COUNTS_FROM_S = 2.0, 1.1, 1e-3
MARK = "RESULT "


@dataclass(frozen=True)
class Operation:
    """One line of the table.

    Attributes:
        title: what is done, as the table says it.
        number: calls in one timing; short operations need more than one.
        wire: whether it serialises, so that the peer's other serialisation method is measured as well.
    """

    title: str
    number: int = 1
    wire: bool = False


OPERATIONS = {
    "chunk": Operation(f"chunk({PARTS})", number=20),
    "concat": Operation(f"concat of {PARTS} parts that own their memory"),
    "union_new": Operation("union, one new column", number=20),
    "union_same": Operation("union, equal columns on both sides"),
    "select": Operation("select of one column", number=20),
    "repeat": Operation(f"repeat({TIMES})"),
    "reorder": Operation("reorder, random permutation"),
    "pickle": Operation("pickle round trip in the stream", wire=True),
    "ray_put": Operation("Ray put", wire=True),
    "ray_get": Operation("Ray get", wire=True),
}


class Bench:
    """The operations of one side; every method returns a timed call and what the call's last result looks like."""

    def __init__(self, module: str) -> None:
        import numpy as np
        import torch

        torch.set_num_threads(1)
        self.cls: Any = importlib.import_module(module).DataProto
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(0, 150_000, (ROWS, WIDTH), generator=generator)
        log_probs = torch.randn(ROWS, WIDTH, generator=generator)
        uid = np.array([f"{row:032x}" for row in range(ROWS)], dtype=object)
        meta = {"temperature": 1.0, "eos_token_id": [1, 2]}
        self.data = self.build({"input_ids": ids, "old_log_probs": log_probs}, {"uid": uid}, meta)
        self.copy = self.build(
            {"input_ids": ids.clone(), "old_log_probs": log_probs.clone()}, {"uid": uid.copy()}, meta
        )
        self.values = self.build({"values": log_probs.clone()}, {}, {})
        self.order = torch.randperm(ROWS, generator=generator)
        self.owned = [
            self.build({name: column.clone() for name, column in part.batch.items()}, dict(part.non_tensor_batch), meta)
            for part in self.data.chunk(PARTS)
        ]
        self.stored: list[Any] = []

    def build(self, tensors: dict[str, Any], others: dict[str, Any], meta: dict[str, Any]) -> Any:
        return self.cls.from_dict(tensors=tensors, non_tensors=others, meta_info=dict(meta))

    def call(self, name: str, number: int) -> tuple[float, Any]:
        """Seconds of one call, averaged over `number`, and the last result."""
        work: Callable[[Any], Any] = getattr(self, name)
        # In-place operations get a batch of their own each time; making it is not timed. Naming the columns makes
        # the peer give it a TensorDict of its own too.
        targets = [self.data.select(batch_keys=["input_ids", "old_log_probs"]) for _ in range(number)]
        gc.collect()
        gc.disable()
        start = time.perf_counter()
        for target in targets:
            result = work(target)
        seconds = (time.perf_counter() - start) / number
        gc.enable()
        return seconds, result

    def chunk(self, target: Any) -> Any:
        return target.chunk(PARTS)

    def concat(self, target: Any) -> Any:
        return self.cls.concat(self.owned)

    def union_new(self, target: Any) -> Any:
        return target.union(self.values)

    def union_same(self, target: Any) -> Any:
        return target.union(self.copy)

    def select(self, target: Any) -> Any:
        return target.select(batch_keys=["input_ids"], non_tensor_batch_keys=["uid"])

    def repeat(self, target: Any) -> Any:
        return target.repeat(TIMES)

    def reorder(self, target: Any) -> Any:
        target.reorder(self.order)
        return target

    def pickle(self, target: Any) -> Any:
        return pickle.loads(pickle.dumps(target, protocol=pickle.HIGHEST_PROTOCOL))

    def ray_put(self, target: Any) -> Any:
        import ray

        self.stored = [ray.put(target)]
        return target

    def ray_get(self, target: Any) -> Any:
        import ray

        return ray.get(self.stored[0])


def digest(result: Any) -> str:
    """What must be the same on both sides: columns, shapes, dtypes, sums, and some rows."""
    parts = result if isinstance(result, (list, tuple)) else [result]
    found = []
    for part in parts:
        for name, column in sorted(part.batch.items()):
            whole = column.double()
            weighted = (whole.sum(1) * (1 + whole.new_tensor(range(len(whole))))).sum().item()
            found.append([name, list(column.shape), str(column.dtype), round(weighted, 3)])
        found.append([str(cell) for cell in part.non_tensor_batch["uid"][:: max(1, len(part) // 7)]])
        found.append(sorted(part.meta_info))
    return json.dumps(found)


def serve(module: str) -> None:
    """One side: reads a request a line from standard input, answers with one marked line."""
    bench = Bench(module)
    versions = {name: importlib.metadata.version(name) for name in ("torch", "tensordict", "numpy", "ray")}
    print(MARK + json.dumps({"versions": versions, "python": platform.python_version()}), flush=True)
    for line in sys.stdin:
        name, number, with_digest = json.loads(line)
        if name.startswith("ray") and not bench.stored:
            start_ray(bench)
        seconds, result = bench.call(name, number)
        answer = {"seconds": seconds, "digest": digest(result) if with_digest else None}
        del result
        print(MARK + json.dumps(answer), flush=True)


def start_ray(bench: Bench) -> None:
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, object_store_memory=512 << 20, log_to_driver=False)
    bench.stored = [ray.put(bench.data)]


class Side:
    """A process that measures one side.

    Args:
        title: how the table calls it.
        python: its interpreter.
        module: where its `DataProto` is.
        **env: environment variables on top of ours.
    """

    def __init__(self, title: str, python: str, module: str, **env: str) -> None:
        self.title = title
        self.seconds: dict[str, list[float]] = {}
        self.digests: dict[str, str] = {}
        self.process = subprocess.Popen(
            [python, str(Path(__file__).resolve()), "--serve", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "RAY_AUTH_MODE": "disabled",
                "RAY_USAGE_STATS_ENABLED": "0",
                **env,
            },
        )
        self.about = self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line[len(MARK) :])
        msg = f"The {self.title} process ended with {self.process.wait()}; run it by hand with --serve to see why."
        raise RuntimeError(msg)

    def time(self, name: str, warm_up: bool) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, OPERATIONS[name].number, warm_up]) + "\n")
        self.process.stdin.flush()
        answer = self.answer()
        if warm_up:
            self.digests[name] = answer["digest"]
        else:
            self.seconds.setdefault(name, []).append(answer["seconds"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def measure(sides: list[Side], rounds: int) -> None:
    """Fill every side's timings: all rounds of an operation before the next, sides in turn within a round."""
    for name, operation in OPERATIONS.items():
        asked = [side for number, side in enumerate(sides) if number < 2 or operation.wire]
        for side in asked:
            side.time(name, warm_up=True)
        if len({side.digests[name] for side in asked}) > 1:
            msg = f"{operation.title}: the sides return different rows."
            raise RuntimeError(msg)
        for round_ in range(rounds):
            for side in asked if round_ % 2 else asked[::-1]:
                side.time(name, warm_up=False)


def milliseconds(samples: list[float]) -> str:
    """Median and the middle half of the samples."""
    low, middle, high = statistics.quantiles(samples, n=4)
    digits = 3 if middle < 1e-3 else 1
    return f"{middle * 1e3:.{digits}f} ({low * 1e3:.{digits}f} - {high * 1e3:.{digits}f})"


def table(sides: list[Side]) -> tuple[str, bool]:
    """The result as Markdown, and whether both targets are met."""
    titles = [f"{side.title} [ms]" for side in sides]
    lines = [f"| operation | {' | '.join(titles)} | times faster |", "|---" * (len(sides) + 2) + "|"]
    speedups, over = [], []
    for name, operation in OPERATIONS.items():
        cells = [milliseconds(side.seconds[name]) if name in side.seconds else "" for side in sides]
        factor = ""
        if len(sides) > 1:
            ours, theirs = (statistics.median(side.seconds[name]) for side in sides[:2])
            speedups.append(theirs / ours)
            factor = f"{theirs / ours:.1f}"
            if theirs >= COUNTS_FROM_S and ours > TARGET_RATIO * theirs:
                over.append(operation.title)
        lines.append(f"| {operation.title} | {' | '.join(cells)} | {factor} |")
    if not speedups:
        return "\n".join(lines), True
    mean = math.exp(statistics.fmean(map(math.log, speedups)))
    lines += [
        "",
        f"Geometric mean: **{mean:.1f} times faster** (target: at least {TARGET_SPEEDUP:.0f}). Above {TARGET_RATIO} of "
        f"the peer's time where that is 1 ms or more: {', '.join(over) or 'none'} (target: none).",
    ]
    return "\n".join(lines), mean >= TARGET_SPEEDUP and not over


def report(sides: list[Side], body: str, rounds: int) -> str:
    """The result file."""
    about = "\n".join(
        f"- {side.title}: Python {side.about['python']}, "
        + ", ".join(f"{name} {version}" for name, version in side.about["versions"].items())
        for side in sides[:2]
    )
    return f"""# Batch operations beside verl 0.9.1

{body}

Columns: `input_ids` {ROWS} x {WIDTH} int64, `old_log_probs` {ROWS} x {WIDTH} float32, `uid` {ROWS} strings. Median of
{rounds} timings, in brackets the middle half. The sides run in processes of their own and are timed in turn, one
operation at a time; results are checked to hold the same rows; freeing results is not timed; one thread on each side.
Ours keeps the memory of freed large results for the next ones (`RL_BUFFER_POOL_MB`): the warm-up, which is not counted,
pays the page faults that the peer pays each time; results larger than the pool's limit pay them too.
"verl, numpy" is verl with `VERL_DATAPROTO_SERIALIZATION_METHOD=numpy`; the factor compares with its default.

{about}
- {os.cpu_count()} cores, {platform.machine()}, {platform.system()}

    OMP_NUM_THREADS=1 python benchmarks/dataproto.py --peer-python PEER/bin/python --rounds {rounds}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="interpreter of an environment with verl; without it only ours is timed")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-write", action="store_true", help="leave the result file alone")
    parser.add_argument("--serve", metavar="MODULE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return 0
    sides = [Side("ours", sys.executable, "rl_dataproto")]
    if args.peer_python:
        sides.append(Side("verl", args.peer_python, "verl.protocol"))
        numpy = {"VERL_DATAPROTO_SERIALIZATION_METHOD": "numpy"}
        sides.append(Side("verl, numpy", args.peer_python, "verl.protocol", **numpy))
    measure(sides, args.rounds)
    for side in sides:
        side.close()
    body, kept = table(sides)
    print(body)
    if args.peer_python and not args.no_write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(report(sides, body, args.rounds))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
