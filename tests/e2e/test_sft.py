"""Supervised fine-tuning on the fakes: the same numbers however the work is shared out, and after a restart."""

import math

import pytest
import torch
from rl_core.errors import CheckpointError, ConfigError, DataError
from rl_core.trainer.sft import main
from safetensors.torch import load_file
from sft_runs import conversations, fine_tune, overrides, read_metrics, untimed, write_rows

CUTS = {
    "two workers": ["trainer.n_gpus_per_node=2"],
    "four workers": ["trainer.n_gpus_per_node=4"],
    "pipeline of two": ["trainer.n_gpus_per_node=2", "engine.strategy=fake-pipeline"],
    "one conversation a pass": ["data.micro_batch_size_per_gpu=1"],
    "token budget": ["data.max_token_len_per_gpu=40", "trainer.n_gpus_per_node=2"],
}


def weights(folder):
    return load_file(folder / "run" / "huggingface" / "model.safetensors")


def assert_close(found, wanted):
    assert len(found) == len(wanted)
    for step, expected in zip(found, wanted, strict=True):
        assert step.keys() == expected.keys()
        for name, value in expected.items():
            assert step[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return fine_tune(folder, "trainer.test_freq=2"), weights(folder)


def test_the_loss_falls_and_is_validated(plain):
    metrics, _ = plain
    assert [step["step"] for step in metrics] == [0, 1, 2, 3, 4]
    assert [step["step"] for step in metrics if "val/loss" in step] == [0, 2, 4]
    assert metrics[4]["train/loss"] < metrics[1]["train/loss"]
    assert metrics[4]["val/loss"] < metrics[0]["val/loss"]
    assert metrics[4]["val/perplexity"] == pytest.approx(math.exp(metrics[4]["val/loss"]))
    # 42+1= goes on for a second turn: "43\n", "it is 43\n"; the others have one turn of "NN\n".
    assert metrics[0]["val/num_tokens"] == 5 * 3 + 9
    assert all(step["train/num_sequences"] == 5 and step["train/grad_norm"] > 0 for step in metrics[1:])


def test_memory_of_training_and_of_validating(plain):
    metrics, _ = plain
    assert all(0.01 < step["memory/sft/update_sft_gib"] < 64 for step in metrics[1:])
    assert [step["step"] for step in metrics if "memory/sft/compute_loss_gib" in step] == [1, 2, 4]
    assert all(step["perf/cpu_memory_used_gb"] > 0.01 for step in metrics[1:])


@pytest.mark.parametrize("cut", CUTS)
def test_the_same_numbers_however_the_work_is_cut(plain, cut, tmp_path):
    metrics, wanted = plain
    assert_close(untimed(fine_tune(tmp_path, "trainer.test_freq=2", *CUTS[cut])), untimed(metrics))
    found = weights(tmp_path)
    assert found.keys() == wanted.keys()
    assert all(torch.allclose(found[name], wanted[name], rtol=1e-9, atol=1e-12) for name in wanted)


def comparable(step, stop_after):
    (step,) = untimed([step])
    skipped = ("val/", "training/total_steps") if step["step"] <= stop_after else ()
    return {name: value for name, value in step.items() if not name.startswith(skipped)}


@pytest.mark.parametrize("stop_after", [2, 3])
def test_a_resumed_run_is_the_straight_one(plain, stop_after, tmp_path):
    # 12 rows in batches of 5: an epoch ends after step 2.
    metrics, wanted = plain
    options = ["trainer.test_freq=2", "trainer.save_freq=1"]
    fine_tune(tmp_path, *options, f"trainer.total_training_steps={stop_after}")
    resumed = fine_tune(tmp_path, *options)
    # The stopped run validated after its own last step too.
    assert [comparable(step, stop_after) for step in resumed] == [comparable(step, stop_after) for step in metrics]
    found = weights(tmp_path)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_checkpoints_are_kept_and_pointed_to(tmp_path):
    fine_tune(tmp_path, "trainer.save_freq=1", "trainer.max_ckpt_to_keep=2", "trainer.export_dir=null")
    run = tmp_path / "run"
    assert sorted(path.name for path in run.glob("global_step_*")) == ["global_step_3", "global_step_4"]
    assert (run / "latest_checkpointed_iteration.txt").read_text() == "4\n"
    assert (run / "global_step_4" / "actor").is_dir()
    assert not (run / "huggingface").exists()
    assert (run / "config.yaml").is_file()


def test_a_finished_run_is_said_to_be_complete(tmp_path, capsys):
    fine_tune(tmp_path, "trainer.total_training_steps=1")
    fine_tune(tmp_path, "trainer.total_training_steps=1")
    assert [step["step"] for step in read_metrics(tmp_path)] == [0, 1]
    assert "already complete: all 1 steps are done" in capsys.readouterr().out
    assert not list((tmp_path / "run").glob(".*"))


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    fine_tune(tmp_path, "trainer.total_training_steps=1")
    write_rows(tmp_path / "train.jsonl", conversations(12, start=1))
    with pytest.raises(CheckpointError, match="belongs to another run"):
        main(overrides(tmp_path, "trainer.total_training_steps=2"))


def test_rows_that_are_cut_or_left_out_are_told(tmp_path, capsys):
    rows = [*conversations(11), {"messages": [{"role": "user", "content": "only a question"}]}]
    write_rows(tmp_path / "train.jsonl", rows)
    more = ["data.max_length=30", "data.truncation=right", "data.val_files=null", "trainer.total_training_steps=1"]
    assert main(overrides(tmp_path, *more)) == 0
    out = capsys.readouterr().out
    assert "1 of 12 training rows have no token to learn and are left out." in out
    assert "training rows are longer than data.max_length (30) and cut at their end" in out


def test_bad_input_is_refused_before_anything_starts(tmp_path):
    write_rows(tmp_path / "train.jsonl", conversations(4))
    write_rows(tmp_path / "val.jsonl", conversations(4))
    with pytest.raises(ConfigError, match=r"data\.train_batch_size \(5\) exceeds the 4 training rows"):
        main(overrides(tmp_path))
    with pytest.raises(ConfigError, match=r"there is no key data\.trian_files"):
        main(["data.trian_files=x"])
    write_rows(tmp_path / "train.jsonl", [{"question": "q"}] * 5)
    with pytest.raises(DataError, match="row 0 has neither a conversation"):
        main(overrides(tmp_path))


def test_help_and_the_composed_configuration(capsys):
    assert main(["--help"]) == 0
    assert "rl sft KEY=VALUE" in capsys.readouterr().out
    assert main(["--cfg", "job", "data.max_length=7", "-p", "data"]) == 0
    assert "max_length: 7\n" in capsys.readouterr().out
