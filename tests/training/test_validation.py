"""Validation before, during and after training; what is written down; which names it has."""

import json

import pytest
from rl_dataproto import DataProto  # noqa: F401 - the batch type is part of what is dumped
from tiny_runs import train

pytestmark = pytest.mark.heavy


def test_validation_at_its_steps_with_names_dumps_and_shown_answers(model, tmp_path, capsys):
    metrics = train(
        model,
        tmp_path,
        f"data.val_files={tmp_path}/train.jsonl",
        "data.val_max_samples=5",
        "actor_rollout_ref.rollout.val_kwargs.n=2",
        "actor_rollout_ref.rollout.val_kwargs.temperature=1.0",
        "trainer.total_training_steps=3",
        "trainer.test_freq=2",
        "trainer.log_val_generations=1",
        "trainer.logger=[console,jsonl]",
        f"trainer.validation_data_dir={tmp_path}/val",
        f"trainer.rollout_data_dir={tmp_path}/rollouts",
    )

    headline = "val-core/letters/reward/mean@2"
    assert [step["step"] for step in metrics if headline in step] == [0, 2, 3]
    assert "val-core/letters/reward/best@2/mean" in metrics[0]
    assert "val-aux/letters/length/mean@2" in metrics[0]
    assert metrics[0]["val-aux/reward/missing"] == 0

    assert sorted(path.name for path in (tmp_path / "val").iterdir()) == ["0.jsonl", "2.jsonl", "3.jsonl"]
    answers = [json.loads(line) for line in (tmp_path / "val" / "3.jsonl").read_text().splitlines()]
    assert len(answers) == 10
    assert {"input", "output", "gts", "score", "step", "uid", "length"} <= set(answers[0])
    assert sum(answer["score"] for answer in answers) / 10 == pytest.approx(metrics[-1][headline])
    by_prompt = {}
    for answer in answers:
        by_prompt.setdefault(answer["uid"], set()).add(answer["output"])
    assert any(len(texts) == 2 for texts in by_prompt.values())  # sampled, not greedy
    assert len((tmp_path / "rollouts" / "1.jsonl").read_text().splitlines()) == 32
    assert "step 3 score" in capsys.readouterr().out
    assert (tmp_path / "run" / "config.yaml").is_file()
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["packages"]["torch"]


def test_val_only_scores_the_newest_checkpoint(model, tmp_path):
    train(model, tmp_path, "trainer.total_training_steps=1", "trainer.save_freq=1")
    only = ["trainer.total_training_steps=1", "trainer.val_only=true", "trainer.val_before_train=false"]
    metrics = train(model, tmp_path, f"data.val_files={tmp_path}/train.jsonl", "data.val_max_samples=2", *only)
    assert [step["step"] for step in metrics] == [1, 1]
    assert "val-core/letters/reward/mean@1" in metrics[-1]


def test_greedy_validation_of_the_same_weights_repeats(model, tmp_path):
    frozen = ["actor_rollout_ref.actor.optim.lr=0", "trainer.total_training_steps=2", "trainer.test_freq=1"]
    metrics = train(model, tmp_path, f"data.val_files={tmp_path}/train.jsonl", "data.val_max_samples=4", *frozen)
    assert len({step["val-core/letters/reward/mean@1"] for step in metrics}) == 1
