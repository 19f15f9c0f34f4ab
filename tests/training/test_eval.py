"""``rl eval`` with the real engine: a Hugging Face folder, and two checkpoints of a run on it."""

import json

import pytest
from rl_core.errors import CheckpointError
from rl_core.trainer.main_eval import main as evaluate
from rl_testing.models import save_tiny_model
from tiny_runs import train, write_inputs

pytestmark = pytest.mark.heavy


def answers(arguments, out):
    assert evaluate([*map(str, arguments), "--out", str(out)]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_a_model_and_the_checkpoints_of_a_run_on_it(model, tmp_path, capsys):
    frozen = ["actor_rollout_ref.actor.optim.lr=0", "trainer.total_training_steps=1", "trainer.save_freq=1"]
    train(model, tmp_path / "frozen", *frozen)
    train(model, tmp_path / "run", "trainer.total_training_steps=4", "trainer.save_freq=2")
    write_inputs(tmp_path, rows=4)
    rows, sampled = tmp_path / "train.jsonl", ["--n", "4", "--k", "1,4", "--pass-from", "0.5"]

    keys = ["actor_rollout_ref.rollout.name=hf", "data.max_response_length=8", "trainer.runtime=local"]
    keys.append(f"custom_reward_function.path={tmp_path}/my_reward.py")
    texts = {"model": answers([model, rows, *sampled, *keys], tmp_path / "model.jsonl")}
    text = capsys.readouterr().out
    assert "letters" in text
    assert "pass@4" in text
    for name in ("frozen/run", "run/run/global_step_2", "run/run/global_step_4", "run/run"):
        texts[name] = answers([tmp_path / name, rows, *sampled], tmp_path / "answers.jsonl")

    said = {name: [item["output"] for item in found] for name, found in texts.items()}
    assert said["frozen/run"] == said["model"]  # the same weights, once as a folder and once as a checkpoint
    assert said["run/run"] == said["run/run/global_step_4"]
    assert said["run/run/global_step_4"] != said["run/run/global_step_2"] != said["model"]
    assert {item["step"] for item in texts["run/run"]} == {4}
    assert all(item["length"] == len(item["output"]) for item in texts["run/run"])


def test_a_checkpoint_of_another_model_is_refused(model, tmp_path):
    train(model, tmp_path, "trainer.total_training_steps=1", "trainer.save_freq=1")
    save_tiny_model(tmp_path / "other", hidden_size=32)
    with pytest.raises(CheckpointError, match="is a checkpoint of another model"):
        evaluate([str(tmp_path / "run"), f"{tmp_path}/train.jsonl", f"actor_rollout_ref.model.path={tmp_path}/other"])
