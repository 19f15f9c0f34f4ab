"""The two stages as arguments of ``rl sft`` and ``rl train``: all that the demonstration asks of them stands here."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rl_demo.files import DataFiles

SFT_STEPS: Final = 700
GRPO_STEPS: Final = 100
GRPO_LR: Final = 4e-4

PROMPTS_PER_STEP: Final = 32
RESPONSES_PER_PROMPT: Final = 8
OPTIMIZER_STEPS: Final = 2
"""In a step of GRPO, each on its own half of the answers."""

_PLAIN: Final = re.compile(r"[\w./~-]+", re.ASCII)

_COMMON: Final[dict[str, Any]] = {
    "trainer.device": "cpu",
    "trainer.runtime": "local",
    "trainer.logger": "[demo,jsonl]",
    "trainer.project_name": "demo",
    "trainer.total_epochs": 1000,  # the number of steps ends both stages
}


def sft_arguments(model: Path, data: DataFiles, run: Path, *, seed: int, steps: int) -> list[str]:
    """Arguments of ``rl sft``; the trained model is exported to ``sft_model(run)``.

    Args:
        model: folder of the untrained model.
        data: the data files.
        run: run folder.
        seed: of the order of rows.
        steps: optimizer steps.
    """
    return _arguments(
        _COMMON
        | {
            "trainer.experiment_name": run.name,
            "trainer.default_local_dir": run,
            "trainer.seed": seed,
            "trainer.total_training_steps": steps,
            "trainer.save_freq": 0,
            "model.path": model,
            "model.enable_gradient_checkpointing": False,
            "model.use_remove_padding": False,  # short rows: some padding costs less than attention over a pack
            "data.train_files": data.sft,
            "data.train_batch_size": 64,
            "data.max_length": 32,
            "optim.lr": 4e-3,
            "optim.lr_scheduler_type": "cosine",
            "optim.lr_warmup_steps": min(50, steps // 2),
            "optim.betas": "[0.9,0.98]",
        }
    )


def sft_model(run: Path) -> Path:
    """Where ``rl sft`` leaves its model."""
    return run / "huggingface"


def grpo_arguments(
    model: Path, data: DataFiles, run: Path, *, seed: int, steps: int, learning_rate: float
) -> list[str]:
    """Arguments of ``rl train``; held-out problems are answered before the first step and after the last.

    Args:
        model: folder of the model after SFT.
        data: the data files.
        run: run folder.
        seed: of the order of prompts and of all draws.
        steps: of GRPO.
        learning_rate: at the beginning; it falls to zero in a straight line. 0 changes nothing, as a control.
    """
    return _arguments(
        _COMMON
        | {
            "trainer.experiment_name": run.name,
            "trainer.default_local_dir": run,
            "trainer.seed": seed,
            "trainer.total_training_steps": steps,
            "algorithm.adv_estimator": "grpo",
            "data.train_files": data.rl,
            "data.val_files": data.held_out,
            "data.train_batch_size": PROMPTS_PER_STEP,
            "data.max_prompt_length": 16,
            "data.max_response_length": 12,
            "actor_rollout_ref.model.path": model,
            "actor_rollout_ref.model.enable_gradient_checkpointing": False,
            "actor_rollout_ref.model.use_remove_padding": False,
            "actor_rollout_ref.actor.ppo_mini_batch_size": PROMPTS_PER_STEP // OPTIMIZER_STEPS,
            "actor_rollout_ref.actor.optim.lr": learning_rate,
            "actor_rollout_ref.actor.optim.lr_scheduler_type": "linear",
            "actor_rollout_ref.rollout.name": "hf",
            "actor_rollout_ref.rollout.n": RESPONSES_PER_PROMPT,
        }
    )


def commands_text(sft: Sequence[str], grpo: Sequence[str], *, export: Path) -> str:
    """Both stages as a shell script, for those who want to change a key and run one again.

    Args:
        sft: arguments of ``rl sft``.
        grpo: arguments of ``rl train``.
        export: the model that ``sft`` leaves. It is in a comment, for ``grpo`` starts from another one.
    """
    other_model = shlex.quote(_argument("actor_rollout_ref.model.path", export))
    return "".join(
        [
            "# The two stages of the demonstration, each with a run folder of its own: change a key, run one.\n"
            "# A folder holds one run, and a finished one is not trained again: for each further try, change\n"
            "# trainer.default_local_dir too.\n",
            f'PATH="$PATH:{Path(sys.executable).parent}"\n',
            _command("sft", sft),
            f"\n# From the model of the demonstration's SFT. From that of the command above:\n#   {other_model}",
            _command("train", grpo),
        ]
    )


def _arguments(values: Mapping[str, Any]) -> list[str]:
    return [_argument(key, value) for key, value in values.items()]


def _argument(key: str, value: object) -> str:
    return f"{key}={_quoted(value) if isinstance(value, Path) else value}"


def _quoted(path: Path) -> str:
    """A path as the grammar of overrides reads it: in quotes where it holds characters that mean something there."""
    text = str(path)
    if _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("'", r"\'") + "'"


def _command(name: str, arguments: Sequence[str]) -> str:
    lines = [f"rl {name}", *map(shlex.quote, arguments)]
    return "\n" + " \\\n  ".join(lines) + "\n"
