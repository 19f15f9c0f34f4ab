"""Passes and optimizer steps of the FSDP engine on one GPU, beside a plain transformers step on the same data.

The shapes are those of Qwen2.5 with random weights: no weight of a real model is needed to measure speed. Two workloads:

``update``  32,768 packed tokens: prompts of 128 tokens, responses of lognormal length (mean 600, at most 2,048, fixed seed)
``peers``   512 sequences, prompts of 53 to 142 tokens and responses of 256: that of benchmarks/results/grpo_step_gpu.md

A step is one forward and backward pass over all of it, cut as the token budget says, and an AdamW step on float32 weights; the
model computes in bfloat16. The plain side pads every row to the longest of its pass, computes all logits in bfloat16 and
widens them, and has the same AdamW. MFU counts model FLOPs with causal attention, the output layer for response tokens alone,
and no recomputation, against 989 TFLOP/s.

    python benchmarks/fsdp_step_gpu.py [--shapes 0.5b 1.5b] [--only NAME ...] [--steps 6] [--out FILE]
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from rl_backend_fsdp.config import FSDPConfig
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.config.optim import OptimConfig
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_dataproto import DataProto, jagged_from_rows
from transformers import AutoModelForCausalLM, Qwen2Config

PEAK = 989e12
VOCABULARY = 151_936
SHAPES = {"0.5b": (896, 4864, 24, 14, 2), "1.5b": (1536, 8960, 28, 12, 2)}


@dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes:
        name: as the table says it.
        shape: key of ``SHAPES``.
        workload: "update" or "peers".
        side: "ours" or "plain".
        checkpointing: recompute activations.
        compiled: compile the blocks and what happens to logits.
        max_tokens: token budget of a pass.
    """

    name: str
    shape: str
    workload: str
    side: str = "ours"
    checkpointing: bool = False
    compiled: bool = True
    max_tokens: int = 32_768


CASES = (
    Case("0.5b eager", "0.5b", "update", compiled=False),
    Case("0.5b", "0.5b", "update"),
    Case("0.5b plain", "0.5b", "update", side="plain", max_tokens=16_384),
    Case("1.5b eager", "1.5b", "update", compiled=False, checkpointing=True),
    Case("1.5b", "1.5b", "update", checkpointing=True),
    Case("1.5b no recomputation", "1.5b", "update"),
    Case("1.5b plain", "1.5b", "update", side="plain", checkpointing=True, max_tokens=16_384),
    Case("0.5b peers", "0.5b", "peers", checkpointing=True),
    Case("0.5b peers no recomputation", "0.5b", "peers"),
)


class Loss:
    """A policy gradient with weights of its own for each row, without anything that costs time."""

    outputs = frozenset({"log_probs"})

    def __call__(self, outputs: Any, rows: Any) -> tuple[torch.Tensor, dict[str, Any]]:
        """The sum of the log-probs, scaled."""
        return (outputs.log_probs * outputs.response_mask).sum() * -1e-5, {}


def main() -> None:
    """Measure every case asked for, print a line each, write all of them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--profile", action="store_true", help="print the kernels that take longest instead of times")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("rl_engine.attention").setLevel(logging.INFO)
    found = []
    for case in CASES:
        if case.shape not in options.shapes or (options.only and case.name not in options.only):
            continue
        try:
            if options.profile:
                profile(case)
                continue
            result = measure(case, options.steps)
        except (RuntimeError, ValueError) as error:
            result = {"case": case.name, "error": f"{type(error).__name__}: {str(error)[:400]}"}
        found.append(result)
        print("RESULT", json.dumps(result), flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))


def measure(case: Case, steps: int) -> dict[str, Any]:
    """Times of one case; the first steps, which compile and allocate, are left out."""
    rows = workload(case.workload)
    torch.cuda.reset_peak_memory_stats()
    step, score, close = (_ours if case.side == "ours" else _plain)(case, rows)
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - started
    step()
    updates = [_timed(step) for _ in range(steps)]
    peak = torch.cuda.max_memory_allocated()
    scores = []
    if score is not None:
        score()
        scores = [_timed(score) for _ in range(steps)]
    close()
    tokens = sum(prompt + response for prompt, response in rows)
    seconds = statistics.median(updates)
    return {
        "case": case.name,
        "tokens": tokens,
        "sequences": len(rows),
        "first_s": round(first, 2),
        "update_s": [round(value, 4) for value in sorted(updates)],
        "update_tokens_per_s": round(tokens / seconds),
        "update_mfu": round(flops(case.shape, rows) / seconds / PEAK, 4),
        "score_tokens_per_s": round(tokens / statistics.median(scores)) if scores else None,
        "peak_gib": round(peak / 2**30, 2),
    }


def profile(case: Case) -> None:
    """Print the kernels of a step that take longest."""
    step, _, close = (_ours if case.side == "ours" else _plain)(case, workload(case.workload))
    for _ in range(3):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    close()
    print(case.name)
    print(profiler.key_averages().table(sort_by="self_cuda_time_total", row_limit=30, max_name_column_width=70))


def workload(name: str) -> list[tuple[int, int]]:
    """(prompt, response) tokens of each row."""
    generator = torch.Generator().manual_seed(0)
    if name == "peers":
        prompts = torch.randint(53, 143, (512,), generator=generator).tolist()
        return [(prompt, 256) for prompt in prompts]
    rows: list[tuple[int, int]] = []
    sigma = 0.8
    while True:
        draw = math.exp(math.log(600) - sigma**2 / 2 + sigma * float(torch.randn((), generator=generator)))
        row = (128, max(1, min(2048, round(draw))))
        left = 32_768 - sum(map(sum, rows))
        if sum(row) >= left:
            return rows if left <= 129 else [*rows, (128, left - 128)]
        rows.append(row)


def flops(shape: str, rows: list[tuple[int, int]]) -> float:
    """Of a forward and backward pass: matrices, causal attention, the output layer for response tokens."""
    hidden, inner, layers, heads, kv_heads = SHAPES[shape]
    dim = hidden // heads
    weights = layers * (2 * hidden * hidden + 2 * hidden * kv_heads * dim + 3 * hidden * inner)
    tokens = sum(prompt + response for prompt, response in rows)
    pairs = sum((prompt + response) ** 2 / 2 for prompt, response in rows)
    scored = sum(response for _, response in rows)
    return 6 * weights * tokens + 12 * layers * heads * dim * pairs + 6 * hidden * VOCABULARY * scored


def _timed(function: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def _model(shape: str) -> Any:
    hidden, inner, layers, heads, kv_heads = SHAPES[shape]
    config = Qwen2Config(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        tie_word_embeddings=True,
        vocab_size=VOCABULARY,
        max_position_embeddings=32768,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def _folder(shape: str) -> str:
    folder = Path(tempfile.gettempdir()) / f"fsdp_step_gpu-{shape}"
    if not (folder / "config.json").exists():
        model = _model(shape).to(torch.bfloat16)
        model.save_pretrained(folder)
    return str(folder)


def _batch(rows: list[tuple[int, int]]) -> DataProto:
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(0, 150_000, (prompt + response,), generator=generator) for prompt, response in rows]
    responses = [row[prompt:] for row, (prompt, _) in zip(ids, rows, strict=True)]
    return DataProto.from_dict(
        tensors={
            "input_ids": jagged_from_rows(ids),
            "responses": jagged_from_rows(responses),
            "response_mask": jagged_from_rows([torch.ones(len(row), dtype=torch.bool) for row in responses]),
        }
    )


def _ours(case: Case, rows: list[tuple[int, int]]) -> tuple[Callable[[], None], Callable[[], None], Callable[[], None]]:
    context = WorkerContext(
        rank=0, world_size=1, local_rank=0, local_world_size=1, device="cuda:0", collective=SoloCollective()
    )
    engine = FSDPEngine(
        EngineRole.POLICY,
        SimpleNamespace(path=_folder(case.shape), enable_gradient_checkpointing=case.checkpointing),
        EngineConfig(
            max_tokens=case.max_tokens,
            forward_max_tokens=case.max_tokens,
            grad_clip=1.0,
            optim=OptimConfig(lr=1e-6),
            total_training_steps=1000,
            compiled=case.compiled,
            plugin=FSDPConfig(),
        ),
        context,
    )
    engine.initialize()
    batch, loss = _batch(rows), Loss()

    def step() -> None:
        engine.forward_backward(batch, loss)
        engine.optimizer_step()

    return step, lambda: void(engine.forward(batch, {"log_probs"})), engine.close


def void(_: Any) -> None:
    """Forget a result."""


def _plain(case: Case, rows: list[tuple[int, int]]) -> tuple[Callable[[], None], None, Callable[[], None]]:
    model = _model(case.shape).train()
    if case.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    ids = list(_batch(rows).batch["input_ids"].unbind())

    def step() -> None:
        for chosen in _padded_passes(rows, case.max_tokens):
            width = max(sum(rows[row]) for row in chosen)
            padded = torch.zeros(len(chosen), width, dtype=torch.int64)
            mask, scored = torch.zeros_like(padded), torch.zeros_like(padded)
            for place, row in enumerate(chosen):
                prompt, response = rows[row]
                padded[place, : prompt + response] = ids[row]
                mask[place, : prompt + response] = 1
                scored[place, prompt : prompt + response] = 1
            padded, mask, scored = padded.cuda(), mask.cuda(), scored.cuda()
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(input_ids=padded, attention_mask=mask, use_cache=False).logits
            log_probs = torch.log_softmax(logits[:, :-1].float(), -1).gather(-1, padded[:, 1:, None])[..., 0]
            ((log_probs * scored[:, 1:]).sum() * -1e-5).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step, None, lambda: None


def _padded_passes(rows: list[tuple[int, int]], max_tokens: int) -> Iterator[list[int]]:
    """Rows in order, padded to the longest of their pass, at most ``max_tokens`` with the padding."""
    chosen: list[int] = []
    for row in range(len(rows)):
        width = max(sum(rows[other]) for other in [*chosen, row])
        if chosen and width * (len(chosen) + 1) > max_tokens:
            yield chosen
            chosen = []
        chosen.append(row)
    yield chosen


if __name__ == "__main__":
    sys.exit(main())
