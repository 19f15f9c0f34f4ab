"""N steps straight equal k, a stop, and N-k; to the bit on the CPU (DESIGN promise 6)."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from rl_core.errors import CheckpointError
from rl_core.trainer.checkpoint import CheckpointStore
from rl_core.trainer.main_ppo import main
from tiny_runs import arguments, read_metrics, train, write_inputs

pytestmark = pytest.mark.heavy
PPO = ["algorithm.adv_estimator=gae", "algorithm.use_kl_in_reward=true", "algorithm.kl_ctrl.type=adaptive"]


def untimed(step):
    return {key: value for key, value in step.items() if not key.startswith(("timing_s/", "perf/", "memory/"))}


def tensors(folder):
    """Every tensor of a checkpoint, by file and name."""
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

    return {
        (role, name): value
        for role in ("actor", "critic")
        for part in sorted((folder / role).rglob(".metadata"))
        for name, value in _flat(_load_state_dict_from_keys(storage_reader=FileSystemReader(part.parent)))
    }


def _flat(value, prefix=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{prefix}.{key}")
    elif isinstance(value, torch.Tensor):
        yield prefix, value


@pytest.mark.parametrize("stop_after", [3, 4])
def test_three_and_three_steps_are_six_also_at_an_epoch_boundary(stop_after, model, tmp_path):
    # 32 rows in batches of 8: an epoch ends after step 4.
    six = ["trainer.total_training_steps=6", f"trainer.save_freq={stop_after}", *PPO]
    straight = train(model, tmp_path / "straight", *six)
    train(model, tmp_path / "stopped", *six, f"trainer.total_training_steps={stop_after}")
    resumed = train(model, tmp_path / "stopped", *six)

    assert [untimed(step) | {"training/total_steps": 6} for step in resumed] == [untimed(step) for step in straight]
    wanted = tensors(tmp_path / "straight" / "run" / "global_step_6")
    found = tensors(tmp_path / "stopped" / "run" / "global_step_6")
    assert set(found) == set(wanted)
    assert len(wanted) > 20
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_finished_run_is_said_to_be_complete(model, tmp_path, capsys):
    train(model, tmp_path, "trainer.total_training_steps=1", "trainer.save_freq=1")
    train(model, tmp_path, "trainer.total_training_steps=1", "trainer.save_freq=1")
    assert [step["step"] for step in read_metrics(tmp_path)] == [1]
    assert "already complete" in capsys.readouterr().out


def test_another_algorithm_is_refused(model, tmp_path):
    train(model, tmp_path, "trainer.total_training_steps=1", "trainer.save_freq=1")
    with pytest.raises(CheckpointError, match=r"adv_estimator: checkpoint 'grpo', now 'gae'"):
        main(arguments(model, tmp_path, "algorithm.adv_estimator=gae"))


def test_killing_a_run_in_the_middle_of_a_save_leaves_the_one_before(model, tmp_path):
    write_inputs(tmp_path)
    command = arguments(model, tmp_path, "trainer.save_freq=1", "trainer.total_training_steps=50")
    run = subprocess.Popen([sys.executable, "-m", "rl_core.trainer.main_ppo", *command], env=os.environ)
    folder = tmp_path / "run"
    deadline = time.monotonic() + 120
    try:
        while not (list(folder.glob("global_step_*")) and list(folder.glob(".global_step_*.partial"))):
            assert run.poll() is None, "the run ended by itself"
            assert time.monotonic() < deadline, "no save was caught in the middle"
            time.sleep(0.002)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()

    survivor = CheckpointStore(folder).latest()
    assert survivor is not None
    resumed = train(model, tmp_path, "trainer.save_freq=1", f"trainer.total_training_steps={survivor.step + 1}")
    assert [step["step"] for step in resumed] == list(range(1, survivor.step + 2))
    assert not list(folder.glob(".*.partial"))
