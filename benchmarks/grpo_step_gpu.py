"""One GRPO step on one GPU, by phase: `rl train` with co-located engines, on the workload that peers were measured on.

64 GSM8K questions x 8 responses of exactly 256 tokens, a random Qwen2 of the 0.5B shape, a KL loss with a reference, one
optimizer step a batch, activations recomputed, float32 weights with bfloat16 computation. The reward is the share of plain
letters in the answer: a random model solves nothing, and a group needs rewards that differ.

    python benchmarks/grpo_step_gpu.py --gsm8k FOLDER --tokenizer FOLDER [--shape 0.5b] [--steps 6] [key=value ...]

FOLDER of `--gsm8k` holds `train.jsonl` of the data set; that of `--tokenizer` the files of a Qwen tokenizer (without it, a
tokenizer of bytes is used and prompts are longer). Further `key=value` arguments go to `rl train`. Prints the table that
benchmarks/results/grpo_step_gpu.md shows: seconds of each phase, median and range of all steps but the first, beside the
least time that the device's memory bandwidth and peak arithmetic allow.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PEAK_FLOPS = 989e12
"""Dense bfloat16 arithmetic of an H100 or H200 SXM a second, by their data sheets."""
PEAK_BANDWIDTH = 4.8e12
"""Bytes a second of an H200's memory, by its data sheet."""
VOCABULARY = 151_936
EOS, END_OF_TEXT = 151_645, 151_643
SUFFIX = ' Let\'s think step by step and output the final answer after "####".'
PHASES = ("gen", "reward", "old_log_prob", "ref", "adv", "update_actor", "step")


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen2 model with a tied output layer."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int = VOCABULARY

    @property
    def block_weights(self) -> int:
        """Weights of all blocks that multiply activations."""
        attention = self.hidden * (2 * self.hidden + 2 * self.hidden * self.kv_heads // self.heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def head_weights(self) -> int:
        """Weights of the output layer."""
        return self.hidden * self.vocabulary

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values of one token in bfloat16."""
        return 2 * 2 * self.layers * self.hidden * self.kv_heads // self.heads


SHAPES = {
    "tiny": Shape(128, 256, 2, 4, 2, vocabulary=300),
    "0.5b": Shape(896, 4864, 24, 14, 2),
    "1.5b": Shape(1536, 8960, 28, 12, 2),
    "3b": Shape(2048, 11008, 36, 16, 2),
}


@dataclass(frozen=True)
class Workload:
    """Sizes of a step."""

    prompts: int
    group: int
    response: int

    @property
    def rows(self) -> int:
        """Responses of a step."""
        return self.prompts * self.group


def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None) -> float:
    """The reward: the share of plain letters."""
    return sum(c.isascii() and c.isalpha() for c in solution_str) / max(len(solution_str), 1)


def write_model(folder: Path, shape: Shape, tokenizer: Path | None) -> None:
    """A random model with its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config

    if tokenizer is None:
        from rl_testing.models import END_OF_TEXT_ID, TURN_END_ID, save_tiny_model

        save_tiny_model(folder, tie_word_embeddings=True)
        eos, end = TURN_END_ID, END_OF_TEXT_ID
    else:
        shutil.copytree(tokenizer, folder)
        eos, end = EOS, END_OF_TEXT
    config = Qwen2Config(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        tie_word_embeddings=True,
        vocab_size=shape.vocabulary,
        max_position_embeddings=32_768,
        bos_token_id=end,
        eos_token_id=eos,
        pad_token_id=end,
        architectures=["Qwen2ForCausalLM"],
    )
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.generation_config = GenerationConfig(bos_token_id=end, eos_token_id=eos, pad_token_id=end)
    model.save_pretrained(folder)


def write_rows(path: Path, gsm8k: Path, num_rows: int) -> None:
    """The first questions of the training split, in chat form."""
    lines = (gsm8k / "train.jsonl").read_text(encoding="utf-8").splitlines()[:num_rows]
    rows = [
        {
            "data_source": "letters",
            "prompt": [{"role": "user", "content": json.loads(line)["question"] + SUFFIX}],
            "reward_model": {"style": "rule", "ground_truth": ""},
        }
        for line in lines
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def overrides(folder: Path, work: Workload, steps: int, rollout: str) -> list[str]:
    """What `rl train` is given."""
    return [
        "algorithm.adv_estimator=grpo",
        f"data.train_files={folder / 'train.jsonl'}",
        "data.val_files=null",
        "data.shuffle=False",
        f"data.train_batch_size={work.prompts}",
        "data.max_prompt_length=512",
        f"data.max_response_length={work.response}",
        f"custom_reward_function.path={Path(__file__).resolve()}",
        f"actor_rollout_ref.model.path={folder / 'model'}",
        "actor_rollout_ref.model.enable_gradient_checkpointing=True",
        "actor_rollout_ref.actor.strategy=fsdp",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={work.prompts}",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768",
        "actor_rollout_ref.actor.optim.lr=1e-6",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.actor.kl_loss_coef=0.001",
        f"actor_rollout_ref.rollout.name={rollout}",
        f"actor_rollout_ref.rollout.n={work.group}",
        "actor_rollout_ref.rollout.ignore_eos=True",
        f"actor_rollout_ref.rollout.max_num_seqs={work.rows}",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
        "trainer.save_freq=0",
        "trainer.test_freq=0",
        "trainer.logger=[console,jsonl]",
        f"trainer.total_training_steps={steps}",
        "trainer.total_epochs=1000",
        f"trainer.default_local_dir={folder / 'run'}",
    ]


def train(folder: Path, arguments: Sequence[str], log: Path) -> list[dict[str, float]]:
    """Run `rl train`; every step's metrics, with ``since_start_s`` when it ended.

    Raises:
        RuntimeError: the run failed; the end of its output.
    """
    with log.open("w") as out:
        done = subprocess.run(
            [sys.executable, "-m", "rl_core.trainer.main_ppo", *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
    if done.returncode:
        msg = f"rl train ended with {done.returncode}:\n{log.read_text()[-6000:]}"
        raise RuntimeError(msg)
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def least_seconds(shape: Shape, work: Workload, tokens: float) -> dict[str, float]:
    """Per phase, what arithmetic at peak and each byte moved once would take.

    Generation reads all weights at each of its steps, and the cache of every sequence; passes score response tokens
    alone in the output layer. Attention scores are left out: below 3 % at these lengths.
    """
    responses = work.rows * work.response
    prompt = (tokens - responses) / work.rows
    forward = (2 * shape.block_weights * tokens + 2 * shape.head_weights * responses) / PEAK_FLOPS
    cached = work.rows * work.response * (prompt + work.response / 2) * shape.kv_bytes
    read = work.response * 2 * (shape.block_weights + shape.head_weights) + cached
    decode = max(read / PEAK_BANDWIDTH, 2 * (shape.block_weights + shape.head_weights) * responses / PEAK_FLOPS)
    least = {"gen": decode, "old_log_prob": forward, "ref": forward, "update_actor": 3 * forward}
    return least | {"step": sum(least.values())}


def table(steps: list[dict[str, float]], shape: Shape, work: Workload) -> str:
    """Markdown: a line a phase."""
    steady = steps[1:] or steps
    tokens = statistics.median(step["perf/total_num_tokens"] for step in steady)
    least = least_seconds(shape, work, tokens)
    lines = [
        f"{len(steady)} steps after the first, {tokens:,.0f} tokens a step, {work.rows * work.response:,} of them sampled",
        "",
        "| phase | seconds: median (range) | step 1 | least on this device |",
        "|---|---|---|---|",
    ]
    names = [*PHASES, *sorted({k.removeprefix("timing_s/") for s in steady for k in s if k.startswith("timing_s/")})]
    for name in dict.fromkeys(names):
        values = [step[f"timing_s/{name}"] for step in steady if f"timing_s/{name}" in step]
        if values:
            floor = f"{least[name]:.3f}" if name in least else ""
            spread = f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"
            lines.append(f"| {name} | {spread} | {steps[0].get(f'timing_s/{name}', float('nan')):.3f} | {floor} |")
    for name in sorted(k for k in steady[-1] if k.startswith(("perf/", "memory/", "rollout/"))):
        values = [step[name] for step in steady if name in step]
        lines.append(f"| `{name}` | {statistics.median(values):.6g} ({min(values):.6g} to {max(values):.6g}) | | |")
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gsm8k", type=Path, required=True, help="folder with train.jsonl")
    parser.add_argument("--tokenizer", type=Path, help="folder with a Qwen tokenizer's files")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="0.5b")
    parser.add_argument("--rollout", default="vllm")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--response", type=int, default=256)
    parser.add_argument("--out", type=Path, help="folder for the run's metrics and output; default: a temporary one")
    options, extra = parser.parse_known_args()
    shape, work = SHAPES[options.shape], Workload(options.prompts, options.group, options.response)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_model(folder / "model", shape, options.tokenizer)
        write_rows(folder / "train.jsonl", options.gsm8k, work.prompts * options.steps)
        log = (options.out or folder) / "rl_train.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        arguments = [*overrides(folder, work, options.steps, options.rollout), *extra]
        steps = train(folder, arguments, log)
        seconds = time.perf_counter() - started
        if options.out:
            shutil.copy(folder / "run" / "metrics.jsonl", options.out / "metrics.jsonl")
    start_up = seconds - sum(step["timing_s/step"] for step in steps)
    print(
        f"GRPO step, {options.shape}, rollout {options.rollout}: {seconds:.0f} s in all, {start_up:.0f} s outside steps"
    )
    print(table(steps, shape, work))
    return 0


if __name__ == "__main__":
    sys.exit(main())
