"""The vLLM rollout on one GPU: sampling beside bare vLLM, and how long weights take into it.

*Sampling*: the same prompts, responses of exactly N tokens with their log-probs, once through `VllmRollout.generate` (one
request a response, as the worker makes them) and once through vLLM's own `LLM.generate`. Both engines stand on the device at
once with the same arguments; they take turns, and the one to go first changes every pair.

*Hand-over*: from the trainer's weights (float32 in the FSDP engine, cast to bfloat16 on the way) to the engine's
acknowledgement, digests included, level-2 sleep before each; beside the time of one copy of the same bytes on the device.

    python benchmarks/rollout_vllm_gpu.py [--shape 1.5b] [--prompts 64] [--group 8] [--response 256] [--pairs 5]

Runs on vLLM's CPU build too (`--shape tiny --device cpu`), where its figures say nothing about a GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from grpo_step_gpu import SHAPES, Shape, write_model
from rl_backend_fsdp.config import FSDPConfig
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.config import RolloutConfig
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.contracts.rollout import RolloutRequest, RolloutState, SamplingParams
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_core.workers.async_runner import AsyncRunner
from rl_resharding.movers import StagedResharding
from rl_rollout_vllm.server import VllmRollout

BUCKET_BYTES = 1 << 30
MEMORY_SHARE = 0.3


class NoPhases:
    """Nothing moves by itself: the benchmark says what is where."""

    def enter(self, phase: str) -> None:
        """Nothing."""

    def leave(self, phase: str) -> None:
        """Nothing."""


def context(device: str) -> WorkerContext:
    """The only worker."""
    return WorkerContext(
        rank=0, world_size=1, local_rank=0, local_world_size=1, device=device, collective=SoloCollective()
    )


class Pairing:
    """A trainer and a generator that share the device, joined as in a run."""

    def __init__(self, folder: Path, device: str, max_num_seqs: int, max_model_len: int) -> None:
        """Start both; the trainer's weights are those of ``folder``."""
        model = SimpleNamespace(path=str(folder), trust_remote_code=False, override_config={}, lora_rank=0)
        rollout: Any = RolloutConfig(
            name="vllm", max_model_len=max_model_len, max_num_seqs=max_num_seqs, gpu_memory_utilization=MEMORY_SHARE
        )
        self.runner = AsyncRunner("rollout", deadline_s=1200.0)
        config = EngineConfig(plugin=FSDPConfig(), forward_max_tokens=1024)
        self.engine = FSDPEngine(EngineRole.REFERENCE, model, config, context(device))
        self.engine.initialize()
        self.rollout = VllmRollout(model, rollout, context(device))
        self.runner.run(self.rollout.initialize())
        self.mover = StagedResharding(
            self.engine,
            self.rollout,
            phases=NoPhases(),
            run=self.runner.run,
            context=context(device),
            bucket_bytes=BUCKET_BYTES,
        )
        self.version = 0

    def hand_over(self) -> tuple[float, int]:
        """Seconds and bytes of one update, into an engine that has given everything back."""
        self.runner.run(self.rollout.sleep(2))
        self.runner.run(self.rollout.wake([RolloutState.WEIGHTS]))
        synchronize()
        self.version += 1
        started = time.perf_counter()
        report = self.mover.move(self.version)
        seconds = time.perf_counter() - started
        self.runner.run(self.rollout.wake([RolloutState.KV_CACHE]))
        return seconds, report.num_bytes

    def sample(self, prompts: list[list[int]], num_tokens: int) -> int:
        """Tokens of one response to each of ``prompts``."""
        self.runner.run(self.rollout.reset_prefix_cache())
        sampling = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
        requests = [
            RolloutRequest(request_id=str(number), prompt_ids=tuple(ids), sampling=sampling, seed=number)
            for number, ids in enumerate(prompts)
        ]

        async def all_of_them() -> int:
            outputs = await asyncio.gather(*(self.rollout.generate(request) for request in requests))
            return sum(len(output.token_ids) for output in outputs)

        return self.runner.run(all_of_them())

    def close(self) -> None:
        """End both."""
        self.runner.run(self.rollout.close())
        self.runner.close()
        self.engine.close()


def bare(folder: Path, device: str, max_num_seqs: int, max_model_len: int) -> Callable[[list[list[int]], int], int]:
    """vLLM's own entry point on the same model with the same settings."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"  # two engines in one process would share their groups
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    from vllm import LLM
    from vllm import SamplingParams as Params

    memory = (
        {"gpu_memory_utilization": MEMORY_SHARE} if device.startswith("cuda") else {"kv_cache_memory_bytes": 1 << 30}
    )
    llm = LLM(
        model=str(folder),
        dtype="bfloat16" if device.startswith("cuda") else "float32",
        skip_tokenizer_init=True,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=8192,
        enforce_eager=not device.startswith("cuda"),
        logprobs_mode="processed_logprobs",
        **memory,
    )

    def sample(prompts: list[list[int]], num_tokens: int) -> int:
        llm.reset_prefix_cache()
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        params = Params(max_tokens=num_tokens, logprobs=0, ignore_eos=True, detokenize=False)
        outputs = llm.generate(asked, params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return sample


def timed(function: Callable[[], int]) -> tuple[float, int]:
    """Seconds, and what ``function`` counted."""
    started = time.perf_counter()
    count = function()
    return time.perf_counter() - started, count


def synchronize() -> None:
    """Wait for the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def copy_seconds(num_bytes: int, device: str) -> float:
    """One copy of as many bytes on the device, the median of ten."""
    source = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(11):
        synchronize()
        started = time.perf_counter()
        target.copy_(source)
        synchronize()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=tuple(SHAPES), default="1.5b")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--response", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    shape: Shape = SHAPES[options.shape]
    count, length = options.prompts * options.group, 128 + options.response
    generator = torch.Generator().manual_seed(0)
    distinct = [
        torch.randint(3, shape.vocabulary - 300 if shape.vocabulary > 600 else 250, (100,), generator=generator)
        for _ in range(options.prompts)
    ]
    prompts = [ids.tolist() for ids in distinct for _ in range(options.group)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        write_model(folder, shape, None)
        pairing = Pairing(folder, options.device, count, length)
        try:
            hand_overs = [pairing.hand_over() for _ in range(options.pairs + 1)][1:]
            theirs = bare(folder, options.device, count, length)
            pairs = []
            for number in range(options.pairs + 1):
                order = [pairing.sample, theirs] if number % 2 else [theirs, pairing.sample]
                found = {side: timed(lambda side=side: side(prompts, options.response)) for side in order}
                pairs.append((found[pairing.sample], found[theirs]))
        finally:
            pairing.close()
    pairs = pairs[1:]
    tokens = count * options.response
    assert all(ours[1] == other[1] == tokens for ours, other in pairs)
    ratios = sorted(other[0] / ours[0] for ours, other in pairs)
    rates = [tokens / ours[0] for ours, _ in pairs], [tokens / other[0] for _, other in pairs]
    print(f"{options.shape}, {count} responses of {options.response} tokens, {len(pairs)} pairs")
    print(f"tokens/s: ours {statistics.median(rates[0]):,.0f}, bare {statistics.median(rates[1]):,.0f}")
    print(f"ratio: median {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")
    seconds, num_bytes = sorted(second for second, _ in hand_overs), hand_overs[0][1]
    copied = copy_seconds(num_bytes, options.device)
    print(
        f"hand-over of {num_bytes / 2**20:,.0f} MiB: median {statistics.median(seconds) * 1e3:.1f} ms "
        f"({seconds[0] * 1e3:.1f} to {seconds[-1] * 1e3:.1f}), {num_bytes / statistics.median(seconds) / 1e9:.1f} GB/s; "
        f"a copy on the device: {copied * 1e3:.2f} ms, {2 * num_bytes / copied / 1e9:.0f} GB/s read and written"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
