"""One short run of the real trainer on the fakes, in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_core.config import compose
from rl_core.plugins import get_registry
from rl_core.runtime.choose import choose_runtime
from rl_core.trainer.ppo.trainer import PPOTrainer
from rl_core.trainer.task_runner import load_tokenizer
from safetensors.torch import load_file
from torch import Tensor

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass
class Run:
    """What a run left: the metrics of each step, and the weights of each trained role."""

    metrics: list[dict[str, Any]]
    policy: dict[str, Tensor]
    critic: dict[str, Tensor]


def write_prompts(path: Path, count: int = 16) -> Path:
    """Prompts of different lengths for the reward ``count_letter``."""
    rows = (
        {"prompt": LETTERS[: 1 + row % 5], "data_source": "count_letter", "reward_model": {"ground_truth": "a"}}
        for row in range(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def overrides(folder: Path, *more: str) -> list[str]:
    """A run of two steps with two optimizer steps each, SGD, float64; ``more`` wins."""
    chosen = {
        "data.train_files": str(folder / "train.jsonl"),
        "data.val_files": "null",
        "data.train_batch_size": "4",
        "data.max_prompt_length": "16",
        "data.max_response_length": "6",
        "actor_rollout_ref.model.path": "tiny",
        "actor_rollout_ref.actor.strategy": "fake",
        "actor_rollout_ref.actor.ppo_mini_batch_size": "2",
        "actor_rollout_ref.actor.optim.optimizer": "SGD",
        "actor_rollout_ref.actor.optim.lr": "0.5",
        "actor_rollout_ref.rollout.name": "fake",
        "actor_rollout_ref.rollout.n": "2",
        "critic.optim.optimizer": "SGD",
        "critic.optim.lr": "0.5",
        "trainer.runtime": "local",
        "trainer.total_training_steps": "2",
        "trainer.save_freq": "0",
        "trainer.resume_mode": "disable",
        "trainer.logger": "[jsonl]",
        "trainer.default_local_dir": str(folder / "run"),
    }
    chosen |= dict(item.split("=", 1) for item in more)
    return [f"{key}={value}" for key, value in chosen.items()]


def train(folder: Path, *more: str) -> Run:
    """Train and read back what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    write_prompts(folder / "train.jsonl")
    config = compose(overrides(folder, *more)).tree
    registry = get_registry()
    trainer = PPOTrainer(config, load_tokenizer(config, registry), choose_runtime(config, registry), registry)
    try:
        trainer.init_workers()
        trainer.fit()
        trainer.actor_rollout_wg.export_hf(str(folder / "policy"))
        if trainer.use_critic:
            trainer.critic_wg.export_hf(str(folder / "critic"))
    finally:
        trainer.close()
    metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    critic = folder / "critic" / "model.safetensors"
    return Run(
        metrics, load_file(folder / "policy" / "model.safetensors"), load_file(critic) if critic.is_file() else {}
    )
