"""A run folder describes the run that trained what lies in it."""

from __future__ import annotations

import pytest
import sft_runs
from fakes_training import overrides, write_prompts
from rl_core.errors import CheckpointError
from rl_core.trainer.main_ppo import main
from rl_core.trainer.sft import main as fine_tune

KEPT = ("trainer.save_freq=1", "trainer.resume_mode=auto")


@pytest.fixture
def finished(tmp_path):
    """Arguments of a run that has ended, and the file that describes it."""
    write_prompts(tmp_path / "train.jsonl")
    arguments = overrides(tmp_path, "algorithm.adv_estimator=grpo", *KEPT)
    assert main(arguments) == 0
    return arguments, tmp_path / "run" / "config.yaml"


def test_a_run_that_has_nothing_to_do_leaves_it_alone(finished, capsys):
    arguments, described = finished
    before = described.read_bytes()
    assert main([*arguments, "actor_rollout_ref.actor.optim.lr=7"]) == 0
    assert "already complete" in capsys.readouterr().out
    assert described.read_bytes() == before


def test_a_run_that_is_refused_leaves_it_alone(finished):
    arguments, described = finished
    before = described.read_bytes()
    with pytest.raises(CheckpointError, match="belongs to another run"):
        main([*arguments, "trainer.seed=5", "trainer.total_training_steps=4"])
    assert described.read_bytes() == before


def test_a_look_at_a_checkpoint_leaves_it_alone(tmp_path):
    rows = write_prompts(tmp_path / "train.jsonl")
    assert main(overrides(tmp_path, "algorithm.adv_estimator=grpo", *KEPT, "trainer.total_training_steps=1")) == 0
    described = tmp_path / "run" / "config.yaml"
    before = described.read_bytes()
    look = ("trainer.val_only=true", f"data.val_files={rows}", "trainer.total_training_steps=2")
    assert main(overrides(tmp_path, "algorithm.adv_estimator=grpo", *KEPT, *look)) == 0
    assert described.read_bytes() == before


def test_the_same_of_fine_tuning(tmp_path, capsys):
    sft_runs.fine_tune(tmp_path, "trainer.total_training_steps=1")
    described = [tmp_path / "run" / name for name in ("config.yaml", "environment.json")]
    before = [file.read_bytes() for file in described]
    sft_runs.fine_tune(tmp_path, "trainer.total_training_steps=1", "optim.lr=0.25")
    assert "already complete" in capsys.readouterr().out
    with pytest.raises(CheckpointError, match="belongs to another run"):
        fine_tune(sft_runs.overrides(tmp_path, "trainer.total_training_steps=2", "trainer.seed=5"))
    assert [file.read_bytes() for file in described] == before
    sft_runs.fine_tune(tmp_path, "trainer.total_training_steps=2", "optim.lr=0.25")
    assert described[0].read_bytes() != before[0]
