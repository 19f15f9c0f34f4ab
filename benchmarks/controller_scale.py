"""What one step costs the driver, whatever the workers do: 2 to 1,024 workers in memory, 2 to 16 as Ray actors.

The calls of a PPO step (generation, three log-prob-like passes, two updates with their mini-batch plan) on workers that do
almost nothing; the time they spend is taken off. What is left is the controller's: planning, splitting, shipping, gathering,
joining. 4,096 rows of 64 to 192 tokens, jagged. Writes benchmarks/results/controller_scale.md, with the place in the code
where most of the time goes at the largest size.

    OMP_NUM_THREADS=1 python benchmarks/controller_scale.py [--stubs 2 8 32 128 512 1024] [--actors 2 4 8 16] [--rounds 7]
"""

from __future__ import annotations

import argparse
import cProfile
import importlib.metadata
import io
import math
import os
import platform
import pstats
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rl_core.contracts.mini_batch import PLAN_KEY
from rl_core.metrics import Metric
from rl_core.single_controller.base import Dispatch, DispatchInfo, Worker, WorkerContext, WorkerGroup, register
from rl_core.single_controller.base.call import Call, invoke
from rl_core.single_controller.base.collective import SoloCollective
from rl_core.single_controller.base.future import WorkerFuture
from rl_core.single_controller.base.mesh import make_mini_batch_dispatch_fn, make_nd_compute_dataproto_dispatch_fn
from rl_core.trainer.ppo.mini_batch_plan import plan_mini_batches
from rl_dataproto import DataProto, jagged_from_rows

RESULT = Path(__file__).parent / "results" / "controller_scale.md"
ROWS, GROUP = 4096, 8


class Stub(Worker):
    """Answers at once."""

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self.seconds = 0.0

    def dispatch_info(self, mesh_name: str) -> DispatchInfo:
        return DispatchInfo(self.rank, self.world_size, True)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"))
    def generate(self, batch: DataProto) -> DataProto:
        return batch.select(batch_keys=["responses", "response_mask", "rollout_log_probs"], non_tensor_batch_keys=[])

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"))
    def score(self, batch: DataProto, column: str) -> DataProto:
        return batch.select(batch_keys=["rollout_log_probs"], non_tensor_batch_keys=[]).rename(
            "rollout_log_probs", column
        )

    @register(dispatch_mode=make_mini_batch_dispatch_fn("actor"))
    def update(self, batch: DataProto) -> dict[str, Metric]:
        return {f"actor/metric_{number}": Metric(1.0, "sum") for number in range(10)}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def ping(self) -> None:
        """Be there."""


class Ready(WorkerFuture):
    """A result that is there already."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def result(self, timeout: float | None = None) -> Any:
        return self.value

    def done(self) -> bool:
        return True


class StubGroup(WorkerGroup):
    """Workers in memory; remembers how long they took."""

    def __init__(self, world_size: int) -> None:
        super().__init__(Stub, world_size, name="stub")
        self.seconds = 0.0
        self.stubs = [
            Stub(WorkerContext(rank, world_size, rank, world_size, "cpu", SoloCollective()))
            for rank in range(world_size)
        ]

    @property
    def workers(self) -> Sequence[Any]:
        return self.stubs

    def _submit(self, method: str, calls: Mapping[int, Call], *, materialize: bool) -> list[WorkerFuture]:
        started = time.perf_counter()
        results = [
            invoke(self.stubs[rank], method, call, materialize=materialize, timeout_s=None)
            for rank, call in calls.items()
        ]
        self.seconds += time.perf_counter() - started
        return [Ready(result) for result in results]

    def _gather(self, method: str, futures: Sequence[WorkerFuture]) -> list[Any]:
        return [future.result() for future in futures]

    def shutdown(self) -> None:
        self.stubs = []


def make_batch() -> DataProto:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(64, 193, (ROWS,), generator=generator).tolist()
    ids = jagged_from_rows([torch.randint(0, 1000, (size,), generator=generator) for size in sizes])
    masks = jagged_from_rows([torch.ones(size, dtype=torch.bool) for size in sizes])
    log_probs = jagged_from_rows([torch.randn(size, generator=generator) for size in sizes])
    uids = np.array([f"{row // GROUP:08x}" for row in range(ROWS)], dtype=object)
    return DataProto.from_dict(
        tensors={"responses": ids, "response_mask": masks, "rollout_log_probs": log_probs},
        non_tensors={"uid": uids, "data_source": np.array(["gsm8k"] * ROWS, dtype=object)},
    )


def step(group: Any, prompts: DataProto) -> None:
    """The calls of one PPO step."""
    batch = prompts.select().union(group.generate(prompts))
    stages = [group.score.start(batch, column) for column in ("old_log_probs", "ref_log_prob", "values")]
    for stage in stages:
        batch = batch.union(stage.get())
    tokens = [int(size) for size in batch.batch["response_mask"].offsets().diff()]
    for seed in (1, 2):
        planned = batch.select()
        planned.meta_info[PLAN_KEY] = plan_mini_batches(
            batch.non_tensor_batch["uid"],
            np.array(tokens),
            mini_batch_size=ROWS // GROUP // 4,
            epochs=1,
            shuffle=True,
            seed=(seed, 1),
            max_response_length=192,
        )
        group.update(planned)


def timed(group: Any, prompts: DataProto, rounds: int) -> tuple[float, float]:
    """Median seconds of a step on the driver without the workers' own, and the spread (largest minus smallest)."""
    found = []
    for number in range(rounds + 1):
        group.seconds = 0.0
        started = time.perf_counter()
        step(group, prompts)
        if number:
            found.append(time.perf_counter() - started - group.seconds)
    return statistics.median(found), max(found) - min(found)


def contributors(group: Any, prompts: DataProto) -> str:
    """The functions with the largest time of their own in one step."""
    profile = cProfile.Profile()
    profile.enable()
    step(group, prompts)
    profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(8)
    lines = text.getvalue().splitlines()
    start = next(number for number, line in enumerate(lines) if "ncalls" in line)
    return "\n".join(line for line in lines[start:] if line.strip())


def chart(points: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Milliseconds a step over workers, as text; `o` in memory, `x` Ray actors."""
    import plotext

    figure = plotext.figure
    figure.clear()
    for line, marker in zip(points.values(), "ox", strict=True):
        places = [math.log2(count) for count, _ in line]
        figure.draw(figure.signal(places, [seconds * 1e3 for _, seconds in line], marker=marker).lines(True))
    counts = sorted({count for line in points.values() for count, _ in line})
    figure.ruler("x").ticks([math.log2(count) for count in counts], [str(count) for count in counts])
    figure.plot_size(80, 20)
    return str(figure.build().string(colorless=True).rstrip("\n"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stubs", type=int, nargs="*", default=[2, 8, 32, 128, 512, 1024])
    parser.add_argument("--actors", type=int, nargs="*", default=[2, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    prompts = make_batch()
    rows, points = [], {"in memory": [], "Ray actors": []}
    profile = ""
    for count in options.stubs:
        group = StubGroup(count)
        middle, spread = timed(group, prompts, options.rounds)
        points["in memory"].append((count, middle))
        rows.append(f"| in memory | {count} | {middle * 1e3:.1f} | {spread * 1e3:.1f} |")
        print(rows[-1], flush=True)
        profile = contributors(group, prompts)
    for count in options.actors:
        from rl_core.config.ray import RayConfig
        from rl_core.runtime.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
        from rl_core.runtime.ray.cluster import Cluster

        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        cluster = Cluster(RayConfig(), num_workers=count)
        pool = RayResourcePool([count], use_gpu=False, n_gpus_per_node=count)
        pool.reserve(cluster.nodes(), 60)
        actors = RayWorkerGroup(pool, RayClassWithInitArgs(Stub), name="stub")
        actors.seconds = 0.0
        middle, spread = timed(actors, prompts, options.rounds)
        points["Ray actors"].append((count, middle))
        rows.append(f"| Ray actors | {count} | {middle * 1e3:.1f} | {spread * 1e3:.1f} |")
        print(rows[-1], flush=True)
        actors.shutdown()
        pool.release()
        cluster.close()
    drawn = chart(points)
    print(drawn)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("rl-core", "ray", "torch"))
    RESULT.write_text(
        "# What a step costs the driver\n\n"
        f"`benchmarks/controller_scale.py --rounds {options.rounds}`: medians of a step's calls (generation, three passes, two "
        f"updates) on {ROWS} jagged rows. In memory the workers' own time is taken off; with Ray actors it is part of the "
        f"time, and so are the {os.cpu_count()} cores that they share. Python {platform.python_version()}, {versions}.\n\n"
        "| workers | number | ms a step | spread |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n\n"
        f"```\n{drawn}\n```\n\nWhere the driver's time goes at {options.stubs[-1] if options.stubs else 0} workers in memory "
        f"(under a profiler, the workers' own included):\n\n```\n{profile}\n```\n",
        encoding="utf-8",
    )
    print(f"written: {RESULT}")


if __name__ == "__main__":
    main()
