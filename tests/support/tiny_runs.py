"""Runs of the real system on a tiny real model, through the command line's own entry point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rl_core.trainer.main_ppo import main

REWARD = '''
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """Share of characters from the first half of the alphabet: a signal that a tiny model can follow."""
    wanted = sum("a" <= letter <= "m" for letter in solution_str)
    return {"score": wanted / max(len(solution_str), 1), "length": len(solution_str)}
'''


def write_inputs(folder: Path, rows: int = 32) -> None:
    """Prompts and a reward function of the user's."""
    prompts = (
        {
            "prompt": [{"role": "user", "content": f"{row} + 1 ="}],
            "data_source": "letters",
            "reward_model": {"style": "rule", "ground_truth": str(row + 1)},
            "extra_info": {"index": row},
        }
        for row in range(rows)
    )
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts))
    (folder / "my_reward.py").write_text(REWARD)


def arguments(model: Path, folder: Path, *more: str) -> list[str]:
    """The commands of the labs with their own keys, for a small machine; ``more`` wins."""
    chosen = {
        "algorithm.adv_estimator": "grpo",
        "data.train_files": f"{folder}/train.jsonl",
        "data.val_files": "null",
        "data.train_batch_size": "8",
        "data.max_prompt_length": "64",
        "data.max_response_length": "8",
        "actor_rollout_ref.model.path": str(model),
        "actor_rollout_ref.rollout.name": "hf",
        "actor_rollout_ref.rollout.n": "4",
        "actor_rollout_ref.actor.optim.lr": "3e-3",
        "actor_rollout_ref.actor.ppo_mini_batch_size": "8",
        "critic.optim.lr": "3e-3",
        "custom_reward_function.path": f"{folder}/my_reward.py",
        "custom_reward_function.name": "compute_score",
        "trainer.n_gpus_per_node": "1",
        "trainer.nnodes": "1",
        "trainer.runtime": "local",
        "trainer.total_epochs": "20",
        "trainer.total_training_steps": "20",
        "trainer.save_freq": "0",
        "trainer.logger": "[jsonl]",
        "trainer.default_local_dir": f"{folder}/run",
    }
    chosen |= dict(item.split("=", 1) for item in more)
    return [f"{key}={value}" for key, value in chosen.items()]


def train(model: Path, folder: Path, *more: str) -> list[dict[str, Any]]:
    """Train, and the metrics of each step."""
    folder.mkdir(parents=True, exist_ok=True)
    write_inputs(folder)
    assert main(arguments(model, folder, *more)) == 0
    return read_metrics(folder)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``."""
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
