"""Bad input gives a clear error before anything is lost, or is counted as missing."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from interrupts import heed_interrupts
from rl_core.errors import CheckpointError, ConfigError, DataError, MissingRewardError, RlError
from rl_core.trainer.checkpoint import CheckpointStore
from rl_core.trainer.main_ppo import main
from tiny_runs import arguments, read_metrics, train, write_inputs

pytestmark = pytest.mark.heavy


def run(model, folder, *more):
    write_inputs(folder)
    return main(arguments(model, folder, "trainer.total_training_steps=1", *more))


@pytest.mark.parametrize(
    ("override", "error", "message"),
    [
        ("data.train_files=/nowhere/train.parquet", DataError, r"/nowhere/train\.parquet does not exist"),
        ("data.prompt_key=question", DataError, r"row 0 has no column 'question' \(data\.prompt_key\)"),
        ("data.train_batch_size=64", RlError, r"train_batch_size.*64"),
        ("data.max_prompt_length=3", DataError, r"row 0: the prompt has \d+ tokens, data\.max_prompt_length is 3"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size=3", ConfigError, "3"),
        ("custom_reward_function.name=absent", ConfigError, "no such function or class; it has compute_score"),
        ("custom_reward_function.path=null", ConfigError, r"row 0 has data_source 'letters', for which no reward"),
        ("actor_rollout_ref.model.path=/nowhere/model", RlError, "/nowhere/model"),
        ("actor_rollout_ref.actor.optim.lrr=1", ConfigError, r"optim\.lr"),
    ],
)
def test_refused_before_anything_is_trained(override, error, message, model, tmp_path):
    with pytest.raises(error, match=message):
        run(model, tmp_path, override)
    assert not (tmp_path / "run" / "metrics.jsonl").exists() or not (tmp_path / "run" / "metrics.jsonl").read_text()


def test_an_empty_data_set(model, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"no rows in .*empty\.jsonl"):
        run(model, tmp_path, f"data.train_files={tmp_path}/empty.jsonl")


@pytest.mark.parametrize("returned", ["None", "float('nan')", "{'acc': 1.0}", "1/0"])
def test_a_reward_that_is_none_stops_the_run_with_its_reason(returned, model, tmp_path):
    write_inputs(tmp_path)
    (tmp_path / "my_reward.py").write_text(f"def compute_score(**_):\n    return {returned}\n")
    with pytest.raises(MissingRewardError, match=r"32 of 32 rewards are missing \(trainer\.max_failed_reward_fraction"):
        main(arguments(model, tmp_path, "trainer.total_training_steps=1"))


def test_some_missing_rewards_are_left_out_and_counted(model, tmp_path):
    tmp_path.mkdir(exist_ok=True)
    write_inputs(tmp_path)
    source = (tmp_path / "my_reward.py").read_text()
    (tmp_path / "my_reward.py").write_text(
        source + "\nwhole = compute_score\ncalls = []\n\ndef sometimes(**row):\n"
        "    calls.append(1)\n    return whole(**row) if len(calls) % 4 else None\n"
    )
    assert (
        main(
            arguments(
                model,
                tmp_path,
                "custom_reward_function.name=sometimes",
                "trainer.max_failed_reward_fraction=0.5",
                "trainer.total_training_steps=1",
            )
        )
        == 0
    )
    (metrics,) = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert metrics["reward/missing"] == 8


def test_rewards_that_go_bad_in_mid_run_lose_nothing_that_was_trained(model, tmp_path):
    write_inputs(tmp_path)
    source = (tmp_path / "my_reward.py").read_text()
    (tmp_path / "my_reward.py").write_text(
        source + "\nwhole = compute_score\ncalls = []\n\ndef two_steps(**row):\n"
        "    calls.append(1)\n    return whole(**row) if len(calls) <= 64 else None\n"
    )
    command = arguments(
        model,
        tmp_path,
        "custom_reward_function.name=two_steps",
        "trainer.save_freq=-1",
        "trainer.total_training_steps=5",
    )
    with pytest.raises(MissingRewardError):
        main(command)
    assert CheckpointStore(tmp_path / "run").latest().step == 2

    assert main([item.replace("=two_steps", "=compute_score") for item in command]) == 0
    assert [step["step"] for step in read_metrics(tmp_path)] == [1, 2, 3, 4, 5]


def test_a_folder_with_later_checkpoints_is_not_mixed_with(model, tmp_path):
    train(model, tmp_path, "trainer.total_training_steps=2", "trainer.save_freq=1")
    with pytest.raises(CheckpointError, match=r"holds global_step_1, global_step_2, but this run would start anew"):
        run(model, tmp_path, "trainer.save_freq=1", "trainer.resume_mode=disable")
    with pytest.raises(CheckpointError, match="optimizer: checkpoint 'AdamW', now 'SGD'"):
        run(model, tmp_path, "trainer.save_freq=1", "actor_rollout_ref.actor.optim.optimizer=SGD")


def test_over_long_prompts_can_be_filtered(model, tmp_path):
    metrics = train(
        model,
        tmp_path,
        "data.filter_overlong_prompts=true",
        "trainer.total_training_steps=1",
        "data.max_prompt_length=64",
    )
    assert metrics[0]["training/global_step"] == 1


def test_ctrl_c_leaves_no_process_and_no_half_written_file(model, tmp_path):
    write_inputs(tmp_path)
    command = arguments(model, tmp_path, "trainer.save_freq=1", "trainer.total_training_steps=50")
    run = subprocess.Popen(
        [sys.executable, "-m", "rl_core.trainer.main_ppo", *command],
        env=os.environ,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "run").glob("global_step_*")):
        assert run.poll() is None, "the run ended by itself"
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(timeout=60) != 0

    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert lines == "" or lines.endswith("\n")
    assert all(json.loads(line) for line in lines.splitlines())
    assert all((folder / "checkpoint.json").is_file() for folder in (tmp_path / "run").glob("global_step_*"))
    assert not list((tmp_path / "run").glob(".*"))
