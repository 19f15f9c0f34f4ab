"""The example on the fakes: the script runs, both algorithms take steps, and nothing is left behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT


@pytest.mark.heavy
def test_the_demo_trains_with_both_algorithms(tmp_path):
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()
    # A developer's selection of plugins must not keep the fakes out.
    variables = {name: value for name, value in os.environ.items() if name not in ("RL_PLUGINS", "RL_BLOCK_PLUGINS")}
    variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
    variables["TMPDIR"] = str(scratch)
    smaller = ("data.train_batch_size=8", "trainer.total_training_steps=3")
    smaller += ("actor_rollout_ref.actor.ppo_mini_batch_size=8", "critic.ppo_mini_batch_size=8")
    command = ["bash", str(ROOT / "examples/fakes_demo.sh"), *smaller]
    done = subprocess.run(command, cwd=here, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    grpo, ppo = done.stdout.split("== PPO", 1)
    for output, has_critic in ((grpo, False), (ppo, True)):
        steps = re.findall(r"^step (\d+): reward ([\d.e-]+)(.*)$", output, re.MULTILINE)
        assert [step for step, _, _ in steps] == ["1", "2", "3"]
        assert all(0 <= float(reward) <= 1 for _, reward, _ in steps)
        assert all(("vf_loss" in rest) is has_critic for _, _, rest in steps)
    # torch leaves an empty cache folder of its own beside the script's.
    assert list(here.iterdir()) == []
    assert list(scratch.glob("tmp.*")) == []
