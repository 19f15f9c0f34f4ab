"""A run folder describes the run that trained what lies in it."""

from __future__ import annotations

import pytest
from fakes_training import overrides, write_prompts
from rl_core.errors import CheckpointError
from rl_core.trainer.main_ppo import main

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
