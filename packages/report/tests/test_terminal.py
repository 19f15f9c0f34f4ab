import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rl_report import load_run, terminal_report


def printed(folder, width=80):
    out = io.StringIO()
    terminal_report(load_run(folder), Console(file=out, width=width, highlight=False))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits(folder, width):
    assert max(cell_len(line) for line in printed(folder, width).splitlines()) <= width


def test_a_long_text_is_cut_to_the_line(folder):
    text = (folder / "samples.jsonl").read_text().replace("yes", "数学 " * 200)
    (folder / "samples.jsonl").write_text(text)
    assert max(cell_len(line) for line in printed(folder).splitlines()) <= 80


def test_a_long_prompt_leaves_room_for_the_expected_answer(folder):
    text = (folder / "samples.jsonl").read_text().replace("what is", "what is " * 50)
    (folder / "samples.jsonl").write_text(text)
    assert "…   expected v1\n" in printed(folder)


def test_it_tells_the_same_story(folder):
    text = printed(folder)
    for expected in (
        "digits  lab · GRPO",
        "Mean reward rose from 0.2 to 0.9 in 3 steps.",
        "Reward  by step",
        "Held-out  by step, • digits, accuracy",
        "Before and after",
        "expected v1",
        "before      0  <b>no</b>",
        "after       1  yes",
        "Time by phase  30.0 s in all, 10.0 s in a typical step",
        "update actor",
        "Memory by phase  resident set",
        "4.00 GiB",
        "largest mean gap of a step  3e-07 nats",
        "1 rollouts that failed and were left out (most in step 2: 1)",
    ):
        assert expected in text


def test_the_curve_rises(folder):
    lines = printed(folder).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Reward  by step"))
    drawn = lines[start + 2 : start + 13]
    columns = [next((place for place, char in enumerate(line) if "⠁" <= char <= "⣿"), None) for line in drawn]
    found = [column for column in columns if column is not None]
    assert len(found) > 5
    assert found == sorted(found, reverse=True)


def test_prompts_that_changed_most_come_first(folder):
    text = printed(folder)
    assert text.index("expected v1") < text.index("expected v2")


def test_fine_tuning(sft_folder):
    text = printed(sft_folder)
    assert "Loss  by step, ⠒ training, + held-out" in text
    assert "note: The folder has no environment.json." in text
    assert "Parity" not in text


def test_one_step_has_no_curve_but_samples_of_it(logged, row):
    assert "by step" not in printed(logged(row(1, 0.2)))


def test_samples_stand_in_where_nothing_is_held_out(folder):
    lines = (folder / "samples.jsonl").read_text().splitlines()
    (folder / "samples.jsonl").write_text("\n".join(line for line in lines if '"val"' not in line) + "\n")
    text = printed(folder)
    assert "Samples  of step 3" in text
    assert "third try" in text


def test_markup_and_escapes_of_a_model_are_shown_as_they_are(folder):
    text = (folder / "samples.jsonl").read_text().replace("yes", r"[bold]x[/bold] \u001b[31m")
    (folder / "samples.jsonl").write_text(text)
    assert "[bold]x[/bold] �[31m" in printed(folder)


def test_curves_that_do_not_move(logged, row):
    assert "Reward  by step" in printed(logged(row(1, 0.0), row(2, 0.0), row(3, 0.0)))


@pytest.mark.parametrize("reward", [1e-300, 3.4e38, -1e300])
def test_odd_values_are_drawn(logged, row, reward):
    assert "Reward  by step" in printed(logged(row(1, 0.0), row(2, reward)))


def test_a_long_run_is_smoothed(logged, row):
    assert "Reward  by step, moving average" in printed(logged(*(row(step, step / 100) for step in range(1, 101))))


def test_standard_output_that_is_no_terminal_is_80_columns(folder, capsys):
    terminal_report(load_run(folder))
    assert max(cell_len(line) for line in capsys.readouterr().out.splitlines()) <= 80


def test_markup_in_the_name_of_a_phase_or_a_role_is_text(logged):
    text = printed(
        logged(
            {
                "step": 1,
                "timing_s/[red]mine": 1.0,
                "timing_s/step": 1.0,
                "memory/a/[bold]x_gib": 1.0,
                "memory/b/[b]y_gib": 1.0,
            }
        )
    )
    assert "[red]mine" in text
    assert "a: [bold]x" in text
    assert "b: [b]y" in text
