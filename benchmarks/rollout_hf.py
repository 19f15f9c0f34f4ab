"""Tokens per second of the built-in rollout, beside `generate` of transformers on the same model, on one CPU thread.

Two workloads of 64 requests: *equal* (all prompts and responses of one length) and *mixed* (prompts of 4 to 64 tokens,
responses of 8 to 256), each with room for all 64 at a time and for 16. `generate` takes them in fixed batches in order of
arrival, left-padded, and runs each batch until its longest response is done; only tokens that were asked for count. Both
sides sample at temperature 1; ours returns log-probs besides, `generate` does not. Time is CPU time of the process, so that
other work on the machine counts little; on an idle one it is the time that passes. The two take turns, the first to go
changes every round, and the table shows medians.

    OMP_NUM_THREADS=1 python benchmarks/rollout_hf.py [--rounds 5]

Writes benchmarks/results/rollout_hf.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from rl_core.config import RolloutConfig
from rl_core.contracts.rollout import RolloutRequest, SamplingParams
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSlice, WeightSpec
from rl_core.resharding.digest import add_to_digest
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_core.workers.async_runner import AsyncRunner
from rl_rollout_hf.model import named_weights
from rl_rollout_hf.server import HfRollout
from rl_testing.models import save_tiny_model

RESULT = Path(__file__).parent / "results" / "rollout_hf.md"
NUM_REQUESTS = 64


@dataclass(frozen=True)
class Shape:
    """A model to measure on."""

    title: str
    sizes: dict[str, Any]


SHAPES = (
    Shape("tiny: 2 layers, hidden 64, vocabulary 300", {}),
    Shape(
        "small: 6 layers, hidden 256, vocabulary 8192",
        {"hidden_size": 256, "num_layers": 6, "num_heads": 8, "vocab_size": 8192, "initializer_range": 0.05},
    ),
)


@dataclass(frozen=True)
class Request:
    """What one caller wants."""

    prompt: tuple[int, ...]
    num_tokens: int


def equal_requests() -> list[Request]:
    """All of one length."""
    draw = random.Random(0)
    return [Request(tuple(draw.randrange(256) for _ in range(32)), 128) for _ in range(NUM_REQUESTS)]


def mixed_requests() -> list[Request]:
    """Of many lengths."""
    draw = random.Random(1)
    return [
        Request(tuple(draw.randrange(256) for _ in range(draw.randint(4, 64))), draw.randint(8, 256))
        for _ in range(NUM_REQUESTS)
    ]


def run_generate(model: Any, requests: Sequence[Request], batch_size: int) -> float:
    """CPU seconds that `generate` takes for all of `requests`."""
    started = time.process_time()
    for first in range(0, len(requests), batch_size):
        batch = requests[first : first + batch_size]
        width = max(len(one.prompt) for one in batch)
        ids = torch.tensor([[0] * (width - len(one.prompt)) + list(one.prompt) for one in batch])
        mask = torch.tensor([[0] * (width - len(one.prompt)) + [1] * len(one.prompt) for one in batch])
        longest = max(one.num_tokens for one in batch)
        with torch.inference_mode():
            found = model.generate(
                ids,
                attention_mask=mask,
                do_sample=True,
                top_k=0,
                max_new_tokens=longest,
                min_new_tokens=longest,
                eos_token_id=None,
                pad_token_id=0,
            )
        assert found.shape[1] == width + longest
    return time.process_time() - started


class Ours:
    """The rollout engine with a model's weights."""

    def __init__(self, folder: Path, model: Any, max_num_seqs: int) -> None:
        self.runner = AsyncRunner("bench")
        section = SimpleNamespace(path=str(folder), trust_remote_code=False, override_config={})
        rollout = RolloutConfig(name="hf", max_model_len=512, max_num_seqs=max_num_seqs)
        context = WorkerContext(
            rank=0, world_size=1, local_rank=0, local_world_size=1, device="cpu", collective=SoloCollective()
        )
        self.engine = HfRollout(section, rollout, context)
        self.runner.run(self._open(model))

    async def _open(self, model: Any) -> None:
        await self.engine.initialize()
        once = {id(tensor): (name, tensor) for name, tensor in reversed(list(named_weights(model)))}
        parts = tuple(WeightSlice(name, tensor.detach()) for name, tensor in once.values())
        specs = [
            WeightSpec(
                name=part.name, shape=tuple(part.tensor.shape), dtype=str(part.tensor.dtype).removeprefix("torch.")
            )
            for part in parts
        ]
        sink, digest = self.engine.weight_sinks()[0], dict[str, int]()
        add_to_digest(digest, parts)
        await sink.begin(1, WeightManifest(entries=tuple(specs)))
        await sink.put(WeightBucket(parts))
        await sink.end(digest)

    async def _answer(self, requests: Sequence[Request]) -> None:
        outputs = await asyncio.gather(
            *(
                self.engine.generate(
                    RolloutRequest(
                        request_id=str(row),
                        prompt_ids=one.prompt,
                        sampling=SamplingParams(max_tokens=one.num_tokens, ignore_eos=True),
                        seed=row,
                    )
                )
                for row, one in enumerate(requests)
            )
        )
        assert [len(output.token_ids) for output in outputs] == [one.num_tokens for one in requests]

    def run(self, requests: Sequence[Request]) -> float:
        """CPU seconds that the engine takes for all of `requests`."""
        started = time.process_time()
        self.runner.run(self._answer(requests))
        return time.process_time() - started

    def close(self) -> None:
        """End it."""
        self.runner.run(self.engine.close())
        self.runner.close()


def alternate(sides: Sequence[Callable[[], float]], rounds: int) -> list[float]:
    """Median CPU seconds of each side; every round runs all of them, in an order that changes."""
    seconds: list[list[float]] = [[] for _ in sides]
    for number in range(rounds + 1):
        order = list(range(len(sides)))
        for place in order[number % len(sides) :] + order[: number % len(sides)]:
            taken = sides[place]()
            if number:  # the first round warms up
                seconds[place].append(taken)
    return [statistics.median(values) for values in seconds]


def measure(shape: Shape, rounds: int) -> list[str]:
    """Rows of the table for one model."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        save_tiny_model(folder, model_type="qwen2", **shape.sizes)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        for title, requests in (("equal", equal_requests()), ("mixed", mixed_requests())):
            tokens = sum(one.num_tokens for one in requests)
            for size in (NUM_REQUESTS, 16):
                ours = Ours(Path(folder), model, size)
                sides = [
                    lambda requests=requests, size=size: run_generate(model, requests, size),
                    lambda requests=requests, ours=ours: ours.run(requests),
                ]
                theirs_s, ours_s = alternate(sides, rounds)
                ours.close()
                rows.append(
                    f"| {shape.title} | {title} | {size} | {tokens / theirs_s:,.0f} | {tokens / ours_s:,.0f} "
                    f"| {theirs_s / ours_s:.2f} |"
                )
                print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    rows = [row for shape in SHAPES for row in measure(shape, rounds)]
    RESULT.write_text(
        "\n".join(
            [
                "# The built-in rollout beside `generate`",
                "",
                f"64 requests, one thread, float32, median of {rounds} alternating rounds. CPython "
                f"{platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}, "
                f"{os.cpu_count()} CPUs. Tokens that were asked for, per second of CPU time.",
                "",
                "| model | lengths | at a time | `generate` | rollout `hf` | ratio |",
                "|---|---|---|---|---|---|",
                *rows,
                "",
            ]
        )
    )


if __name__ == "__main__":
    main()
