"""Whole runs whose checkpoints are written beside training."""

import subprocess
import sys
from pathlib import Path

import pytest
from rl_core.trainer.checkpoint import CheckpointStore
from sft_runs import fine_tune, untimed
from tiny_runs import train
from torch.distributed.checkpoint.filesystem import FileSystemWriter

pytestmark = pytest.mark.heavy

ASYNC = "checkpoint.async_save=True"
DIES_WHILE_WRITING = """
import os, signal, sys, threading
from rl_core.trainer.checkpoint_saver import CheckpointSaver
from rl_core.trainer.sft import main
from torch.distributed.checkpoint.filesystem import FileSystemWriter

written, write, poll = [], FileSystemWriter.write_data, CheckpointSaver.poll

def stuck_at_the_second(self, plan, planner):
    written.append(1)
    if len(written) == 2:
        (self.path / "__0_0.distcp").write_bytes(b"half of")
        threading.Event().wait()
    return write(self, plan, planner)

def die_at_the_second(self):
    if self._unfinished is not None and self._unfinished.step == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if self._unfinished is not None:
        self.wait()
    poll(self)

FileSystemWriter.write_data, CheckpointSaver.poll = stuck_at_the_second, die_at_the_second
main(sys.argv[1:])
"""


def options(model, *more):
    return [
        f"model.path={model}",
        "engine.strategy=fsdp",
        "optim.optimizer=AdamW",
        "data.train_batch_size=6",
        "data.val_files=null",
        "data.max_token_len_per_gpu=256",
        "trainer.save_freq=1",
        *more,
    ]


def weights(folder):
    return (folder / "run/huggingface/model.safetensors").read_bytes()


def steps(folder):
    return [item.step for item in CheckpointStore(folder / "run").all()]


def test_two_ranks_on_ray_go_on_from_it_to_the_bit(model, tmp_path):
    ray = ["trainer.runtime=ray", "trainer.device=cpu", "trainer.n_gpus_per_node=2"]
    straight = fine_tune(tmp_path / "straight", *options(model, *ray))
    stopped = options(model, *ray, ASYNC)
    fine_tune(tmp_path / "stopped", *stopped, "trainer.total_training_steps=2")
    assert steps(tmp_path / "stopped") == [1, 2]
    resumed = fine_tune(tmp_path / "stopped", *stopped)
    assert [step | {"training/total_steps": 4} for step in untimed(resumed)] == untimed(straight)
    assert weights(tmp_path / "stopped") == weights(tmp_path / "straight")
    assert steps(tmp_path / "stopped") == [1, 2, 3, 4]


def test_policy_and_critic_together(model, tmp_path):
    more = ["algorithm.adv_estimator=gae", "trainer.save_freq=1", "actor_rollout_ref.actor.checkpoint.async_save=True"]
    train(model, tmp_path, *more, "critic.checkpoint.async_save=True", "trainer.total_training_steps=2")
    newest = CheckpointStore(tmp_path / "run").latest()
    assert newest.step == 2
    for role in ("actor", "critic"):
        assert (newest.path / role / "tensors/.metadata").is_file()
    (*_, last) = train(model, tmp_path, *more, "critic.checkpoint.async_save=True", "trainer.total_training_steps=3")
    assert last["step"] == 3


def test_a_disk_that_fills_up_ends_the_run_with_the_file_and_the_one_before_stands(
    model, tmp_path, monkeypatch, capsys
):
    written, write = [], FileSystemWriter.write_data

    def full_at_the_second(self, plan, planner):
        written.append(self.path)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        return write(self, plan, planner)

    monkeypatch.setattr(FileSystemWriter, "write_data", full_at_the_second)
    with pytest.raises(Exception, match=r"global_step_2.partial/actor/tensors/__0_0.distcp: OSError: .*No space left"):
        fine_tune(tmp_path, *options(model, ASYNC))
    assert steps(tmp_path) == [1]
    assert (tmp_path / "run/latest_checkpointed_iteration.txt").read_text() == "1\n"


def test_a_process_that_dies_while_it_writes_leaves_the_one_before(model, tmp_path):
    from sft_runs import conversations, overrides, write_rows

    write_rows(tmp_path / "train.jsonl", conversations(12))
    write_rows(tmp_path / "val.jsonl", conversations(5, start=40))
    command = [sys.executable, "-c", DIES_WHILE_WRITING, *overrides(tmp_path, *options(model, ASYNC))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == -9, ended.stderr
    assert Path(tmp_path / "run/.global_step_2.partial/actor/tensors/__0_0.distcp").read_bytes() == b"half of"
    assert steps(tmp_path) == [1]
    fine_tune(tmp_path, *options(model, ASYNC))
    assert steps(tmp_path) == [1, 2, 3, 4]
    assert not list((tmp_path / "run").glob(".global_step*"))
