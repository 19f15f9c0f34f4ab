"""Training a reward model on the fakes: the same numbers however the pairs are shared out, and after a restart."""

import math

import pytest
import torch
from rl_core.errors import CheckpointError, ConfigError, DataError
from rl_core.trainer.rm import main
from rm_runs import overrides, pairs, train_scorer
from safetensors.torch import load_file
from sft_runs import read_metrics, untimed, write_rows

CUTS = {
    "two workers": ["trainer.n_gpus_per_node=2"],
    "four workers": ["trainer.n_gpus_per_node=4"],
    "pipeline of two": ["trainer.n_gpus_per_node=2", "engine.strategy=fake-pipeline"],
    "one pair a pass": ["data.micro_batch_size_per_gpu=1"],
    "token budget": ["data.max_token_len_per_gpu=60", "trainer.n_gpus_per_node=2"],
}
MORE = ["trainer.test_freq=2", "loss.center_coef=0.01"]


def weights(folder):
    return load_file(folder / "run" / "huggingface" / "model.safetensors")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return train_scorer(folder, *MORE), weights(folder)


def test_the_loss_falls_and_is_validated(plain):
    metrics, stored = plain
    assert [step["step"] for step in metrics] == [0, 1, 2, 3, 4]
    assert [step["step"] for step in metrics if "val/loss" in step] == [0, 2, 4]
    # A fresh score head of zeros prefers nothing: every pair is a tie.
    assert metrics[0]["val/accuracy"] == 0.5
    assert metrics[0]["val/loss"] == pytest.approx(math.log(2))
    assert metrics[4]["train/loss"] < metrics[1]["train/loss"] == pytest.approx(math.log(2))
    assert metrics[4]["train/accuracy"] > 0.5
    for step in metrics[1:]:
        assert step["train/num_pairs"] == 5
        assert step["train/margin"] == pytest.approx(step["train/chosen_score"] - step["train/rejected_score"])
        assert step["memory/rm/update_reward_model_gib"] > 0
    assert stored["score.weight"].shape[0] == 1


@pytest.mark.parametrize("cut", CUTS)
def test_the_same_numbers_however_the_pairs_are_cut(plain, cut, tmp_path):
    metrics, wanted = plain
    found = untimed(train_scorer(tmp_path, *MORE, *CUTS[cut]))
    for step, expected in zip(found, untimed(metrics), strict=True):
        assert step == pytest.approx(expected, rel=1e-9, abs=1e-12)
    stored = weights(tmp_path)
    assert stored.keys() == wanted.keys()
    assert all(torch.allclose(stored[name], wanted[name], rtol=1e-9, atol=1e-12) for name in wanted)


def test_a_resumed_run_is_the_straight_one(plain, tmp_path):
    # 12 pairs in batches of 5: an epoch ends after step 2.
    metrics, wanted = plain
    train_scorer(tmp_path, *MORE, "trainer.save_freq=1", "trainer.total_training_steps=3")
    resumed = untimed(train_scorer(tmp_path, *MORE, "trainer.save_freq=1"))
    assert resumed[4] == untimed(metrics)[4]
    found = weights(tmp_path)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_margin_asks_for_more_distance(tmp_path):
    rows = [pair | {"margin": 1.5} for pair in pairs(12)]
    write_rows(tmp_path / "train.jsonl", rows)
    assert main(overrides(tmp_path, "data.val_files=null", "trainer.total_training_steps=1")) == 0
    (step,) = read_metrics(tmp_path)
    assert step["train/loss"] == pytest.approx(math.log(1 + math.exp(1.5)))


def test_a_checkpoint_of_other_pairs_is_refused(tmp_path):
    train_scorer(tmp_path, "trainer.total_training_steps=1")
    write_rows(tmp_path / "train.jsonl", [pair | {"margin": 1.0} for pair in pairs(12)])
    with pytest.raises(CheckpointError, match="belongs to another run"):
        main(overrides(tmp_path, "trainer.total_training_steps=2"))


def test_pairs_that_are_left_out_are_told(tmp_path, capsys):
    same = pairs(1)[0]
    write_rows(tmp_path / "train.jsonl", [*pairs(11), {"chosen": same["chosen"], "rejected": same["chosen"]}])
    more = ["data.max_length=23", "data.truncation=drop", "data.val_files=null", "trainer.total_training_steps=1"]
    assert main(overrides(tmp_path, *more)) == 0
    out = capsys.readouterr().out
    assert "training pairs have a conversation longer than data.max_length (23) and are left out" in out
    assert "1 of 12 training pairs have the same tokens on both sides and are left out." in out


def test_bad_input_is_refused_before_anything_starts(tmp_path):
    write_rows(tmp_path / "val.jsonl", pairs(4))
    write_rows(tmp_path / "train.jsonl", pairs(4))
    with pytest.raises(ConfigError, match=r"data\.train_batch_size \(5\) exceeds the 4 training rows"):
        main(overrides(tmp_path))
    with pytest.raises(ConfigError, match=r"A pair is two conversations: data\.chosen_key"):
        main(["data.messages_key=x"])
    write_rows(tmp_path / "train.jsonl", [{"question": "q"}] * 5)
    with pytest.raises(DataError, match="row 0 has nothing in column 'chosen'"):
        main(overrides(tmp_path))


def test_help_and_the_composed_configuration(capsys):
    assert main(["--help"]) == 0
    assert "rl rm KEY=VALUE" in capsys.readouterr().out
    assert main(["--cfg", "job", "loss.center_coef=0.5", "-p", "loss"]) == 0
    assert "center_coef: 0.5\n" in capsys.readouterr().out
