"""``rl eval`` on the fakes: weights, answers, losses, and errors, through the command's own entry point."""

from __future__ import annotations

import json

import pytest
from fakes_training import overrides, write_prompts
from rl_core.cli.main import main
from rl_core.errors import ConfigError, MissingRewardError, MissingRolloutError
from rl_core.trainer.main_eval import main as evaluate
from rl_core.trainer.main_ppo import main as train
from slow_rollouts import misbehave


@pytest.fixture(scope="module")
def run(tmp_path_factory, installed_fakes):
    """A run of two steps with a checkpoint after each, and a learning rate that changes what is said."""
    folder = tmp_path_factory.mktemp("eval")
    write_prompts(folder / "train.jsonl")
    keys = ["trainer.save_freq=1", "algorithm.adv_estimator=grpo", "actor_rollout_ref.actor.optim.lr=50"]
    assert train(overrides(folder, *keys, f"data.val_files={folder}/train.jsonl")) == 0
    return folder / "run"


@pytest.fixture
def rows(tmp_path):
    return str(write_prompts(tmp_path / "rows.jsonl", 6))


def answers(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_two_checkpoints_give_different_answers_and_one_gives_the_same_again(run, rows, tmp_path):
    texts = {}
    for name, checkpoint in {
        "1": "global_step_1",
        "2": "global_step_2",
        "again": "global_step_2",
        "newest": "",
    }.items():
        out = tmp_path / f"{name}.jsonl"
        assert evaluate([str(run / checkpoint), rows, "--n", "4", "--out", str(out)]) == 0
        texts[name] = [(item["output"], item["score"]) for item in answers(out)]
    assert texts["1"] != texts["2"]
    assert texts["2"] == texts["again"] == texts["newest"]


def test_a_greedy_evaluation_is_the_runs_own_validation(run, tmp_path):
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (value,) = {step["val-core/count_letter/reward/mean@1"] for step in logged if step["step"] == 2}
    out = tmp_path / "out.jsonl"
    assert evaluate([str(run / "global_step_2"), str(run.parent / "train.jsonl"), "--out", str(out)]) == 0
    scores = [item["score"] for item in answers(out)]
    assert len(scores) == 16
    assert sum(scores) / 16 == pytest.approx(value)


def test_the_table_and_every_answer_with_the_parts_of_its_score(run, rows, tmp_path, capsys):
    reward = tmp_path / "reward.py"
    reward.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return {'score': len(solution_str), 'acc': len(solution_str) > 3, 'first': solution_str[:1]}\n"
    )
    out = tmp_path / "sub" / "out.jsonl"
    arguments = [str(run), rows, "--n", "3", "--k", "1,3", "--out", str(out), f"custom_reward_function.path={reward}"]
    assert evaluate(arguments) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines()[3:-2])) <= 80
    assert "6 prompts x 3, temperature 1, at most 6 tokens" in text
    found = answers(out)
    assert [(item["prompt"], item["sample"]) for item in found] == [(p, s) for p in range(6) for s in range(3)]
    assert {"input", "output", "gts", "score", "step", "uid", "data_source", "finish_reason", "error"} <= set(found[0])
    assert all(item["step"] == 2 and item["first"] == item["output"][:1] for item in found)
    assert all(item["passed"] is (len(item["output"]) > 3) for item in found)
    right = [sum(item["passed"] for item in found[p * 3 : p * 3 + 3]) for p in range(6)]
    numbers = [line.split() for line in text.splitlines() if line.startswith("count_letter")]
    assert numbers[1] == ["count_letter", f"{sum(right) / 18:.3f}", f"{sum(r > 0 for r in right) / 6:.3f}"]


def test_how_many_prompts_go_at_a_time_changes_no_answer(run, rows, tmp_path):
    texts = []
    for size in ("null", "4"):
        out = tmp_path / f"{size}.jsonl"
        assert evaluate([str(run), rows, "--n", "2", "--out", str(out), f"data.val_batch_size={size}"]) == 0
        texts.append(out.read_text())
    assert texts[0] == texts[1]


def test_failed_rollouts_are_shown_written_and_end_in_an_error_above_the_limit(
    run, rows, tmp_path, capsys, monkeypatch
):
    misbehave(monkeypatch, raises=4)
    out = tmp_path / "out.jsonl"
    arguments = [str(run), rows, "--n", "2", "--out", str(out)]
    with pytest.raises(MissingRolloutError, match=r"2 of 12 rollouts failed .*the environment broke"):
        evaluate(arguments)
    found = answers(out)
    assert [item["prompt"] for item in found if item["output"] is None] == [4, 4]
    assert len(found) == 12
    for item in found[8:10]:
        assert (item["score"], item["passed"], item["num_tokens"]) == (None, None, None)
        assert "the environment broke" in item["error"]
        assert item["input"]
    text = capsys.readouterr().out
    row = next(line.split() for line in text.splitlines() if line.startswith("count_letter"))
    assert row[1:3] + row[-2:] == ["6", "12", "2", "0"]
    assert "pass@2: 1 of 6 prompts have fewer than 2 scored answers" in text
    assert evaluate([*arguments, "trainer.max_failed_rollout_fraction=0.2"]) == 0


def test_missing_rewards_are_no_zeros(run, tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "ab", "data_source": "abstain"}\n' * 2)
    with pytest.raises(MissingRewardError, match="no opinion"):
        evaluate([str(run), str(rows)])
    row = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("abstain"))
    assert row[3] == "-"
    assert row[-2:] == ["0", "2"]


def test_a_data_source_without_a_reward_is_refused_before_anything_starts(run, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "ab", "data_source": "nobody/knows"}\n')
    with pytest.raises(ConfigError, match="row 0 has data_source 'nobody/knows', for which no reward is installed"):
        evaluate([str(run), str(rows)])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--n", "2", "--k", "3"], "error: --k asks for pass@3, but each prompt gets 2 answers"),
        (["--n", "0"], "error: argument --n: '0' is no whole number"),
        (["--out", "."], "error: --out is ., a folder"),
        (["--out", "/proc/nothing/x"], "error: --out is /proc/nothing/x, which cannot be written"),
    ],
)
def test_arguments_that_cannot_be(run, rows, more, message, capsys):
    assert main(["eval", str(run), rows, *more]) == 2
    assert capsys.readouterr().err.startswith(message)


def test_what_is_no_checkpoint_and_no_file(rows, tmp_path, run, capsys):
    assert main(["eval", str(tmp_path / "gone"), rows]) == 2
    assert main(["eval", str(run), str(tmp_path / "gone.jsonl")]) == 2
    assert main(["eval", str(run)]) == 2
    texts = capsys.readouterr().err.split("error: ")
    assert [
        "no such folder" in texts[1],
        "does not exist" in texts[2],
        "needs a CHECKPOINT and a FILE" in texts[3],
    ] == [
        True,
        True,
        True,
    ]
