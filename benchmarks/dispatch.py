"""One call of a worker group on Ray: split a batch, ship it, run, ship back, join. Ours beside verl's `RayWorkerGroup`.

The same worker class on both sides: `log_prob` takes a whole batch and answers with one column, as most calls of a step do;
`echo` sends all of it back. 1,024 rows of 2,048 tokens with the columns of an update. Each side runs in a process of its
own with a Ray cluster of its own; this script asks them in turn for one call, and which side goes first changes every round.
Also measured: CPU time of the driver, bytes it serialises for one call, and its private memory while 256 MB travel.
Prints a table; with a peer it also writes benchmarks/results/dispatch.md.

    OMP_NUM_THREADS=1 python benchmarks/dispatch.py --peer-python PEER/bin/python [--workers 2 4 8] [--rounds 15]

PEER is the environment that benchmarks/dataproto.py describes.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "dispatch.md"
ROWS, WIDTH = 1024, 2048
METHODS = ("log_prob", "echo")
MARK = "RESULT "
TARGET_RATIO = 0.5
MIB = 2**20


def columns(jagged: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of an update: prompts of half the width, responses of the other half."""
    import numpy as np
    import torch

    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 150_000, (ROWS, WIDTH), generator=generator)
    half = WIDTH // 2
    dense = {
        "input_ids": ids,
        "responses": ids[:, half:].clone(),
        "response_mask": torch.ones(ROWS, half, dtype=torch.int64),
    }
    if not jagged:
        dense["attention_mask"] = torch.ones_like(ids)
        dense["position_ids"] = torch.arange(WIDTH).expand(ROWS, WIDTH).clone()
    for name in ("old_log_probs", "ref_log_prob", "advantages", "returns", "token_level_scores"):
        dense[name] = torch.randn(ROWS, half, generator=generator)
    others = {
        "uid": np.array([f"{row:032x}" for row in range(ROWS)], dtype=object),
        "data_source": np.array(["gsm8k"] * ROWS, dtype=object),
        "reward_model": np.array([{"ground_truth": str(row), "style": "rule"} for row in range(ROWS)], dtype=object),
    }
    if not jagged:
        return dense, others
    from rl_dataproto import jagged_from_rows

    kept = torch.randint(1, half + 1, (ROWS,), generator=generator).tolist()
    ragged = {
        name: jagged_from_rows(
            [
                row[: length + (half if column.shape[1] == WIDTH else 0)]
                for row, length in zip(column, kept, strict=True)
            ]
        )
        for name, column in dense.items()
    }
    return ragged, others


class Side:
    """A worker group and the batches it is called with."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self.batches = self.make_batches()

    def call(self, method: str, batch: str) -> dict[str, float]:
        """Wall and CPU seconds of one call on the driver."""
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        result = getattr(self.group, method)(self.batches[batch])
        taken = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        assert len(result) == ROWS
        return taken

    def sent(self, method: str, batch: str) -> dict[str, float]:
        """Bytes that the driver serialises for one call."""
        import ray

        context = ray._private.worker.global_worker.get_serialization_context()
        return {"bytes": sum(context.serialize(piece).total_bytes for piece in self.pieces(batch))}

    def memory(self) -> dict[str, float]:
        """Largest growth of the driver's private memory while a batch of 256 MB is echoed, as a share of the batch."""
        import psutil
        import torch

        rows = 1024
        big = self.cls.from_dict(tensors={"x": torch.ones(rows, 256 * MIB // rows // 4, dtype=torch.float32)})
        process = psutil.Process()
        before = private(process)
        result = self.group.echo(big)
        assert len(result) == rows
        return {"share": (private(process) - before) / (256 * MIB)}


def private(process: Any) -> int:
    """Memory of a process that it shares with nobody: without Ray's object store."""
    found = process.memory_full_info()
    return int(found.uss)


class Ours(Side):
    def __init__(self, num_workers: int) -> None:
        from rl_core.config.ray import RayConfig
        from rl_core.runtime.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
        from rl_core.runtime.ray.cluster import Cluster
        from rl_core.single_controller.base import Dispatch, Worker, register
        from rl_dataproto import DataProto

        class Stage(Worker):
            @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
            def log_prob(self, batch: Any) -> Any:
                return batch.select(batch_keys=["old_log_probs"], non_tensor_batch_keys=[])

            @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
            def echo(self, batch: Any) -> Any:
                return batch

        self.cls = DataProto
        super().__init__(num_workers)
        cluster = Cluster(RayConfig(), num_workers=num_workers)
        pool = RayResourcePool([num_workers], use_gpu=False)
        pool.reserve(cluster.nodes(), 60)
        self.group = RayWorkerGroup(pool, RayClassWithInitArgs(Stage), name="stage")

    def make_batches(self) -> dict[str, Any]:
        found = {}
        for name, jagged in (("padded", False), ("jagged", True)):
            tensors, others = columns(jagged)
            found[name] = self.cls.from_dict(tensors=tensors, non_tensors=others, meta_info={"temperature": 1.0})
        return found

    def pieces(self, batch: str) -> list[Any]:
        return list(self.batches[batch].chunk(self.num_workers))


class Peer(Side):
    def __init__(self, num_workers: int) -> None:
        import ray
        from verl import DataProto
        from verl.single_controller.base import Worker
        from verl.single_controller.base.decorator import Dispatch, register
        from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

        @ray.remote
        class Stage(Worker):
            @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
            def log_prob(self, batch: Any) -> Any:
                return batch.select(batch_keys=["old_log_probs"], non_tensor_batch_keys=[])

            @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
            def echo(self, batch: Any) -> Any:
                return batch

        self.cls = DataProto
        super().__init__(num_workers)
        # Its pool wants ten CPUs for each worker, and waits for ever where they are missing.
        ray.init(
            address="local",
            num_cpus=10 * num_workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
        self.group = RayWorkerGroup(
            RayResourcePool([num_workers], use_gpu=False), RayClassWithInitArgs(Stage), device_name="cpu"
        )

    def make_batches(self) -> dict[str, Any]:
        tensors, others = columns(False)
        return {"padded": self.cls.from_dict(tensors=tensors, non_tensors=others, meta_info={"temperature": 1.0})}

    def pieces(self, batch: str) -> list[Any]:
        return list(self.batches[batch].chunk(self.num_workers))


def serve(side: str, num_workers: int) -> None:
    """Answer requests, a JSON list a line, until stdin ends."""
    import torch

    torch.set_num_threads(1)
    bench = Ours(num_workers) if side == "ours" else Peer(num_workers)
    print(MARK + json.dumps(sorted(bench.batches)), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(MARK + json.dumps(getattr(bench, name)(*arguments)), flush=True)


class Child:
    """A side in a process of its own."""

    def __init__(self, python: str, side: str, num_workers: int) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled", "RAY_DEDUP_LOGS": "0"}
        command = [python, __file__, "--serve", side, str(num_workers)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, bufsize=1
        )
        self.batches = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        sys.exit("a side ended: its error stands above")

    def ask(self, *request: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        return self._answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def measure(peer_python: str | None, num_workers: int, rounds: int) -> list[list[str]]:
    """Rows of the table for one number of workers."""
    ours = Child(sys.executable, "ours", num_workers)
    peer = Child(peer_python, "peer", num_workers) if peer_python else None
    rows = []
    for method in METHODS:
        for batch in ours.batches:
            # The peer has no ragged columns in this class: the same rows travel padded there.
            theirs = "padded"
            taken: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
            for number in range(rounds + 2):
                sides = [("ours", ours, batch), ("peer", peer, theirs)]
                for name, child, which in sides if number % 2 else sides[::-1]:
                    if child is not None:
                        figures = child.ask("call", method, which)
                        if number >= 2:
                            taken[name].append(figures)
            sent = ours.ask("sent", method, batch)["bytes"]
            peer_sent = peer.ask("sent", method, theirs)["bytes"] if peer else 0.0
            rows.append(table_row(num_workers, f"{method}, {batch}", taken, sent, peer_sent))
    share = ours.ask("memory")["share"]
    peer_share = peer.ask("memory")["share"] if peer else float("nan")
    print(
        f"{num_workers} workers: driver's private memory after an echo of 256 MB: {share:.2f} of it, peer {peer_share:.2f}",
        flush=True,
    )
    rows.append(
        [str(num_workers), "private memory, 256 MB echo", "", "", "", "", f"{share:.2f}x", f"{peer_share:.2f}x"]
    )
    for child in (ours, peer):
        if child is not None:
            child.close()
    return rows


def table_row(
    num_workers: int, title: str, taken: dict[str, list[dict[str, float]]], sent: float, peer_sent: float
) -> list[str]:
    wall = statistics.median(call["wall"] for call in taken["ours"])
    cpu = statistics.median(call["cpu"] for call in taken["ours"])
    cells = [str(num_workers), title, f"{wall * 1e3:.1f}", "", f"{cpu * 1e3:.1f}", "", f"{sent / MIB:.0f} MiB", ""]
    if taken["peer"]:
        pairs = [mine["wall"] / other["wall"] for mine, other in zip(taken["ours"], taken["peer"], strict=True)]
        low, middle, high = (
            statistics.quantiles(pairs, n=4)[0],
            statistics.median(pairs),
            statistics.quantiles(pairs, n=4)[2],
        )
        peer_wall = statistics.median(call["wall"] for call in taken["peer"])
        peer_cpu = statistics.median(call["cpu"] for call in taken["peer"])
        cells[2] += f" / {peer_wall * 1e3:.1f}"
        cells[3] = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        cells[4] += f" / {peer_cpu * 1e3:.1f}"
        cells[5] = f"{cpu / peer_cpu:.2f}"
        cells[7] = f"{peer_sent / MIB:.0f} MiB"
    print("  ".join(cells), flush=True)
    return cells


HEADER = [
    "workers",
    "call",
    "ms, ours / verl",
    "ratio (quartiles)",
    "driver CPU ms",
    "ratio",
    "serialised, ours",
    "verl",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="python of an environment with verl")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve[0], int(options.serve[1]))
        return
    rows = [row for count in options.workers for row in measure(options.peer_python, count, options.rounds)]
    if not options.peer_python:
        return
    lines = [" | ".join(["", *cells, ""]).strip() for cells in [HEADER, ["---"] * len(HEADER), *rows]]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("rl-core", "ray", "torch"))
    RESULT.write_text(
        "# One call of a worker group on Ray, ours and verl 0.9.1\n\n"
        f"`benchmarks/dispatch.py --peer-python PEER --rounds {options.rounds}`: medians of alternating calls, ratios pair by "
        f"pair. Python {platform.python_version()}, {versions}; {os.cpu_count()} cores, one thread a process. The aim is a "
        f"ratio of {TARGET_RATIO}.\n\n"
        f"{ROWS} rows of {WIDTH} tokens. `log_prob` returns one column of float32, `echo` everything. For `jagged` our rows "
        "have 1 to 1,024 response tokens and travel unpadded; verl's travel padded.\n\n" + "\n".join(lines) + "\n",
        encoding="utf-8",
    )
    print(f"written: {RESULT}")


if __name__ == "__main__":
    main()
