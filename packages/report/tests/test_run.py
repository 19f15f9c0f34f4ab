import io
import json

import pytest
from rich.console import Console
from rl_core.errors import DataError
from rl_report import html_report, load_run, terminal_report


def test_everything_of_a_run_folder(folder):
    run = load_run(folder)
    assert list(run.rows) == [0, 1, 2, 3]
    assert run.series("critic/score/mean").steps == (1, 2, 3)
    assert run.series("critic/score/mean").values == (0.2, 0.4, 0.9)
    assert not run.series("nothing/of/that/name")
    assert run.setting("actor_rollout_ref.rollout.n") == 8
    assert run.setting("actor_rollout_ref.rollout.n.deeper") is None
    assert run.environment["git"]["commit"] == "c0ffee"
    assert run.checkpoints == (3,)
    assert len(run.samples) == 7
    assert run.notes == ()


def test_of_a_step_that_was_logged_twice_the_last_record_counts(logged, row):
    run = load_run(logged(row(1, 0.1), row(2, 0.2) | {"only/here": 1.0}, row(2, 0.7), row(3, 0.3)))
    assert run.series("critic/score/mean").values == (0.1, 0.7, 0.3)
    assert not run.series("only/here")
    assert "Step 2 was logged more than once, as after a resume; the last record counts." in run.notes


def test_a_validation_on_its_own_adds_to_its_step(logged, row):
    run = load_run(logged(row(1, 0.1), {"step": 1, "val-core/digits/acc/mean@1": 0.5, "val-aux/reward/missing": 0.0}))
    assert run.rows[1]["critic/score/mean"] == 0.1
    assert run.rows[1]["val-core/digits/acc/mean@1"] == 0.5
    assert not any("more than once" in note for note in run.notes)


def test_steps_come_in_order_whatever_the_file_has(logged, row):
    assert list(load_run(logged(row(3, 0.3), row(1, 0.1))).rows) == [1, 3]


def test_a_number_that_was_not_finite_leaves_a_gap_and_is_told(logged, row):
    run = load_run(logged(row(1, 0.1), row(2, None), row(3, 0.3)))
    assert run.series("critic/score/mean").steps == (1, 3)
    assert "critic/score/mean was not a finite number in step 2; its curve has a gap there." in run.notes


def test_a_torn_last_line_is_left_out_and_told(folder):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "critic/sc')
    run = load_run(folder)
    assert max(run.rows) == 3
    assert "The last line of metrics.jsonl is not complete and is left out." in run.notes


def test_an_earlier_run_beside_it_is_told(folder):
    (folder / "metrics.previous.1.jsonl").write_text("{}\n")
    assert any("an earlier run (metrics.previous.1.jsonl)" in note for note in load_run(folder).notes)
    (folder / "metrics.previous.2.jsonl").write_text("{}\n")
    assert any("earlier runs (metrics.previous.1.jsonl, metrics" in note for note in load_run(folder).notes)


def test_nothing_in_a_run_folder_can_steer_a_terminal(folder):
    steer = "\x1b[31m\u202e"
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines[-1] = json.dumps(json.loads(lines[-1]) | {f"val-core/{steer}/acc/mean@1": 0.5, f"{steer}/nan_count": None})
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    # YAML writes such characters as escapes, and most of them stand nowhere in its text.
    (folder / "config.yaml").write_text('trainer: {experiment_name: "a\\e[31m\\u202e", logger: ["\\e"]} # \u202e\n')
    (folder / "environment.json").write_text(json.dumps({"command": ["rl", steer], "packages": {steer: steer}}))
    run = load_run(folder)
    kept = repr((run.rows, run.config, run.environment, run.notes))  # shows such characters as escapes
    assert "\\x1b" not in kept
    assert "\\u202e" not in kept
    assert "\u202e" not in run.config_text
    assert run.setting("trainer.experiment_name") == "a\ufffd[31m\ufffd"
    out = io.StringIO()
    terminal_report(run, Console(file=out, width=80, highlight=False))
    for text in (out.getvalue(), html_report(run)):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_files_that_are_not_there_are_told(logged, row):
    run = load_run(logged(row(1, 0.1)))
    assert run.notes == ("The folder has no config.yaml.", "The folder has no environment.json.")


def test_samples_of_a_step_that_came_again(folder):
    again = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()][-2:]
    with (folder / "samples.jsonl").open("a") as file:
        file.writelines(
            json.dumps(row | {"response": "newer"}) + "\n" for row in [{**again[0], "split": "train"}, again[0]]
        )
    samples = load_run(folder).samples
    assert [item.response for item in samples if item.step == 3 and item.split == "val"] == ["newer"]
    assert [item.response for item in samples if item.step == 3 and item.split == "train"] == ["newer"]


def test_what_a_model_writes_cannot_steer_a_terminal_or_break_a_file(folder):
    evil = {"step": 9, "split": "val", "uid": "e", "prompt": "a\nb", "response": "\x1b[2J\x00 \ud800 ok"}
    with (folder / "samples.jsonl").open("a") as file:
        file.write(json.dumps(evil | {"components": {"pred": "\x1b[31m"}}) + "\n")
    sample = load_run(folder).samples[-1]
    assert sample.prompt == "a\nb"
    assert sample.response == "�[2J� � ok"
    assert sample.components == {"pred": "�[31m"}


def break_line(folder, text, name="metrics.jsonl"):
    lines = (folder / name).read_text().splitlines()
    lines[1] = text
    (folder / name).write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"step": 1, "x"', r"metrics.jsonl line 2 of 4 is not JSON"),
        ("[1, 2]", r"line 2 is '\[1, 2\]', not a JSON object"),
        ('{"x": 1.0}', r"line 2 has no integer 'step'"),
        ('{"step": true, "x": 1.0}', r"line 2 has no integer 'step'"),
        ('{"step": 1, "x": "high"}', r"line 2: x is 'high', not a number"),
    ],
)
def test_a_broken_line_in_the_middle(folder, text, message):
    break_line(folder, text)
    with pytest.raises(DataError, match=message):
        load_run(folder)


def test_a_broken_sample(folder):
    break_line(folder, '{"step": 1}', "samples.jsonl")
    with pytest.raises(DataError, match=r"samples.jsonl line 2 is no sample"):
        load_run(folder)


@pytest.mark.parametrize(("name", "message"), [("config.yaml", "is not YAML"), ("environment.json", "is not JSON")])
def test_a_broken_paper(folder, name, message):
    (folder / name).write_text("{a: [")
    with pytest.raises(DataError, match=f"{name} {message}"):
        load_run(folder)


def test_no_such_folder_and_a_file(folder):
    with pytest.raises(DataError, match="does not exist"):
        load_run(folder / "nowhere")
    with pytest.raises(DataError, match="is a file; give the run folder"):
        load_run(folder / "config.yaml")


def test_a_folder_that_is_no_run_folder_names_those_inside(folder):
    with pytest.raises(DataError, match=rf"has neither metrics.jsonl nor config.yaml. Run folders inside it: {folder}"):
        load_run(folder.parent)
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="holds no run folder either"):
        load_run(folder / "empty")


def test_a_run_without_numbers_yet(folder):
    (folder / "metrics.jsonl").write_text("")
    with pytest.raises(DataError, match=r"has no numbers yet: metrics.jsonl is empty"):
        load_run(folder)
    (folder / "metrics.jsonl").write_text('{"step"')
    with pytest.raises(DataError, match=r"the only line of metrics.jsonl is not complete"):
        load_run(folder)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(DataError, match=r"metrics.jsonl is not there.*lacks 'jsonl'"):
        load_run(folder)
