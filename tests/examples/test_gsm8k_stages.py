"""The stages of examples/gsm8k one after another, on a tiny model and a few problems: the commands fit together."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rl_testing.models import save_tiny_model

ROOT = Path(__file__).parents[2] / "examples"
PROBLEMS = [
    {"question": f"{a} pens and {b} pens?", "answer": f"{a}+{b}=<<{a}+{b}={a + b}>>{a + b}\n#### {a + b}"}
    for a in range(1, 6)
    for b in range(1, 5)
]
SMALL_STEPS = ["trainer.total_training_steps=1", "data.train_batch_size=2", "data.max_response_length=8"]


@pytest.fixture
def stage(tmp_path):
    """Runs a stage with the tiny model, on the built-in generator."""
    source = tmp_path / "source"
    source.mkdir()
    for split, problems in {"train": PROBLEMS, "test": PROBLEMS[:3]}.items():
        (source / f"{split}.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    save_tiny_model(tmp_path / "model", seed=3)
    home = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{home}{os.pathsep}{os.environ['PATH']}",
        "DATA": str(tmp_path / "data"),
        "MODEL": str(tmp_path / "model"),
        "RUNS": str(tmp_path / "runs"),
        "ROLLOUT": "hf",
    }

    def run(*command):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(
        sys.executable,
        ROOT / "data_preprocess" / "gsm8k.py",
        "--local_dir",
        tmp_path / "data",
        "--source",
        source,
        "--sft",
    )

    def stage(name, *more, path=None):
        if path is not None:
            environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
        return run("bash", ROOT / "gsm8k" / f"{name}.sh", *more)

    return stage


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["sft", "grpo", "ppo"])
def test_every_key_of_a_stage_is_known_and_has_an_effect(stage, name, tmp_path):
    # In the place of rl: one that checks what it is asked to run.
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "rl").write_text(
        f"""#!/bin/sh
command=$1
shift
exec {Path(sys.executable).parent / "rl"} check --command "$command" "$@"
"""
    )
    (commands / "rl").chmod(0o755)
    model = tmp_path / "model"
    paths = {"sft": [], "grpo": [f"actor_rollout_ref.model.path={model}"]}
    paths["ppo"] = [*paths["grpo"], f"critic.model.path={model}"]
    said = stage(name, *paths[name], path=commands)
    assert said.endswith("ok.\n")
    assert "has no effect" not in said


@pytest.mark.slow
def test_from_the_data_to_the_comparison(stage, tmp_path):
    stage("sft", "trainer.total_training_steps=2", "data.train_batch_size=4", "data.max_length=512")
    stage("grpo", *SMALL_STEPS, "actor_rollout_ref.rollout.n=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2")
    stage("ppo", *SMALL_STEPS, "actor_rollout_ref.actor.ppo_mini_batch_size=2")
    for name, checkpoint in {"sft": "sft/huggingface", "grpo": "grpo", "ppo": "ppo"}.items():
        said = stage("evaluate", f"{tmp_path}/runs/{checkpoint}", name, "data.max_response_length=8")
        assert "3 prompts x 8" in said
    answers = tmp_path / "runs" / "answers"
    compared = subprocess.run(
        [sys.executable, ROOT / "gsm8k" / "compare.py", answers / "sft-8.jsonl", answers / "grpo-8.jsonl"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "(3 problems)" in compared.stdout
    (step,) = (json.loads(line) for line in (tmp_path / "runs" / "ppo" / "metrics.jsonl").read_text().splitlines())
    assert step["critic/vf_loss"] > 0
