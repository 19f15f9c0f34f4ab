import io
import json

import pytest
from rich.console import Console
from rl_report import html_report, load_run, terminal_report
from rl_report.story import movement, tell


@pytest.fixture
def story(folder):
    return tell(load_run(folder))


def test_title_and_verdict(story):
    assert story.title == "digits"
    assert story.subtitle == "lab · GRPO"
    assert story.verdict == (
        "Mean reward rose from 0.2 to 0.9 in 3 steps. Held-out accuracy rose from 0.25 to 0.75 on digits "
        "(before and after)."
    )


def test_facts(story):
    facts = {fact.label: (fact.value, fact.is_good) for fact in story.facts}
    assert facts["Reward"] == ("0.2 → 0.9", True)
    assert facts["Held-out accuracy"] == ("0.25 → 0.75", True)
    assert facts["Steps"] == ("3 of 3", None)
    assert facts["Time"] == ("30.0 s", None)
    assert facts["Log-prob gap"] == ("3e-07 nats", None)
    assert facts["Missing or failed"] == ("1", False)


def test_before_and_after_of_the_same_prompts(story):
    assert story.pair_steps == (0, 3)
    assert [(pair.before.response, pair.after.response, pair.change) for pair in story.pairs] == [
        ("<b>no</b>", "yes", 1.0),
        ("same", "same", 0.0),
    ]


def test_a_held_out_prompt_without_an_answer_stays(folder):
    lines = (folder / "samples.jsonl").read_text().splitlines()
    (folder / "samples.jsonl").write_text("\n".join(lines[1:]) + "\n")
    (first, second) = tell(load_run(folder)).pairs
    assert (first.before, first.after.response, first.change) == (None, "yes", None)
    assert second.change == 0.0


def test_one_validation_has_no_before(folder):
    lines = (folder / "samples.jsonl").read_text().splitlines()
    (folder / "samples.jsonl").write_text("\n".join(lines[2:]) + "\n")
    story = tell(load_run(folder))
    assert story.pair_steps == (3, 3)
    assert [pair.before for pair in story.pairs] == [None, None]


def test_samples_of_training(story):
    assert {step: [item.response for item in items] for step, items in story.samples.items()} == {
        1: ["first try", "second try"],
        3: ["third try"],
    }


def test_of_many_steps_a_few_are_shown_with_the_first_and_the_last(folder):
    row = json.loads((folder / "samples.jsonl").read_text().splitlines()[2])
    rows = [row | {"step": step} for step in range(1, 101)]
    (folder / "samples.jsonl").write_text("".join(json.dumps(item) + "\n" for item in rows))
    assert list(tell(load_run(folder)).samples) == [1, 26, 51, 75, 100]


def test_failures_are_counted_and_zero_ones_stay(story):
    found = {item.label: (item.total, item.worst_step, item.worst) for item in story.failures}
    assert found["rollouts that failed and were left out"] == (1, 2, 1)
    assert found["rewards that are missing; their rollouts were left out"] == (0, None, 0)
    assert any("skipped" in label for label in found)


def test_parity(story):
    gap = story.parity
    assert (gap.at_step, gap.limit, gap.is_close) == (3, 0.1, True)
    assert (gap.largest_mean, gap.largest) == (pytest.approx(3e-7), pytest.approx(3e-5))


def test_what_it_ran_with(story):
    assert story.parts["responses a prompt"] == "8"
    assert story.parts["checkpoints"] == "steps 3"
    assert story.versions["git commit"] == "c0ffee, with changes that are not committed"
    assert story.plugins == {"rl-core": "0.1.0"}
    assert story.command == "rl train trainer.seed=1"


def test_fine_tuning_is_judged_by_its_loss(sft_folder):
    story = tell(load_run(sft_folder))
    assert story.subtitle == "supervised fine-tuning"
    assert story.verdict == (
        "Training loss fell from 5 to 1 in 3 steps. Held-out loss fell from 5 to 1.25 (before and after)."
    )
    facts = {fact.label: (fact.value, fact.is_good) for fact in story.facts}
    assert facts["Held-out loss"] == ("5 → 1.25", True)
    assert (story.parity, story.pairs, story.failures) == (None, (), ())


def test_ends_of_a_long_noisy_run_are_averages(logged, row):
    story = tell(load_run(logged(*(row(step, 0.5 + 0.4 * (step % 2)) for step in range(1, 101)))))
    assert story.verdict.startswith("Mean reward fell from 0.767 to 0.633 in 100 steps (moving average).")
    assert next(fact for fact in story.facts if fact.label == "Reward").detail == "moving average"


def test_one_step_and_one_validation(logged, row):
    story = tell(load_run(logged(row(1, 0.2) | {"val-core/a/b/reward/mean@4": 0.5})))
    assert story.verdict == (
        "Mean reward is 0.2 after the one step there is. Held-out reward is 0.5 on a/b, validated once."
    )
    assert ("1 of 3", False) in {(fact.value, fact.is_good) for fact in story.facts}


def test_numbers_of_nothing_that_is_known(logged):
    story = tell(load_run(logged({"step": 1, "mine/number": 2.0})))
    assert story.verdict == "1 step logged; neither a reward nor a loss among the numbers."
    assert story.charts == ()


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0.2, 0.9, "rose from 0.2 to 0.9"), (3, 1, "fell from 3 to 1"), (0.5, 0.50001, "stayed at 0.5")],
)
def test_movement(first, last, expected):
    assert movement(first, last) == expected


def test_only_step_0_is_before_training(folder):
    for name in ("metrics", "samples"):
        path = folder / f"{name}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(row | {"step": row["step"] or 1}) + "\n" for row in rows))
    run = load_run(folder)
    story = tell(run)
    assert "Held-out accuracy rose from 0.25 to 0.75 on digits (from step 1 to step 3)." in story.verdict
    assert (story.pair_title, story.pair_names) == ("First and last validation", ("first", "last"))
    page, out = html_report(run), io.StringIO()
    terminal_report(run, Console(file=out, width=80))
    for text in (page, out.getvalue()):
        assert "First and last validation" in text
        assert "efore and after" not in text


def test_a_group_that_failed_is_not_counted_on_top_of_its_rollouts(logged, row):
    rows = [row(1, 0.2) | {"rollout/failed": 4.0, "rollout/failed_groups": 1.0}]
    story = tell(load_run(logged(*rows)))
    assert next(fact.value for fact in story.facts if fact.label == "Missing or failed") == "4"
    assert "prompts of which every rollout failed" in {item.label for item in story.failures}
