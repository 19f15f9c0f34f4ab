"""The report of a run that the trainer itself wrote: what the two agree on about the run folder."""

import io
import json

import pytest
from fakes_training import train, write_prompts
from rich.console import Console
from rl_report import html_report, load_run, terminal_report
from rl_report.story import tell

pytestmark = pytest.mark.heavy


def trained(folder, *more):
    folder.mkdir(parents=True, exist_ok=True)
    val = write_prompts(folder / "val.jsonl", count=12)
    train(
        folder,
        "algorithm.adv_estimator=gae",
        "algorithm.use_kl_in_reward=true",
        f"data.val_files={val}",
        "trainer.test_freq=1",
        *more,
    )
    return load_run(folder / "run")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("report"), "trainer.total_training_steps=3", "trainer.n_gpus_per_node=2")


def test_the_folder_holds_what_a_report_needs(run):
    story = tell(run)
    assert list(run.rows) == [0, 1, 2, 3]
    assert story.verdict.startswith("Mean reward ")
    assert "Held-out reward" in story.verdict
    titles = {chart.title for chart in story.charts}
    assert {"Reward", "Held-out", "Response length", "KL", "Gradient norm", "Learning rate"} <= titles
    assert {"generate", "update critic", "update actor", "validate"} <= {phase.label for phase in story.timing.phases}
    assert sum(phase.share for phase in story.timing.phases) == pytest.approx(1.0, abs=0.02)
    assert story.parity is not None
    assert story.parity.largest_mean < 1e-4
    assert {item.total for item in story.failures} == {0}


def test_memory_of_every_phase_of_every_role(run):
    held = tell(run).memory
    phases = {(item.role, item.phase) for item in held.phases}
    assert {("actor_rollout_ref", "generate"), ("actor_rollout_ref", "update_actor"), ("critic", "values")} <= phases
    assert all(0.01 < item.gib < 64 for item in held.phases)
    assert held.host_gib == pytest.approx(max(item.gib for item in held.phases), rel=0.5)


def test_the_same_held_out_prompts_before_and_after(run):
    story = tell(run)
    assert story.pair_steps == (0, 3)
    assert len(story.pairs) == 8
    assert all(pair.before and pair.after and pair.before.prompt == pair.after.prompt for pair in story.pairs)
    assert [pair.before.prompt for pair in story.pairs][:3] == ["a", "ab", "abc"]


def test_samples_belong_to_the_scores_of_their_step(run):
    samples = tell(run).samples
    assert list(samples) == [1, 2, 3]
    for step, items in samples.items():
        assert len(items) == 8  # the whole batch of these runs
        mean = sum(item.score for item in items) / 8
        assert mean == pytest.approx(run.rows[step]["critic/score/mean"], abs=1e-6)


def test_page_and_terminal(run):
    assert "Before and after" in html_report(run)
    out = io.StringIO()
    terminal_report(run, Console(file=out, width=80))
    assert "Time by phase" in out.getvalue()


def test_a_run_that_goes_on_has_the_same_samples_as_one_without_a_stop(tmp_path):
    saved = ("trainer.save_freq=1", "trainer.resume_mode=auto")
    whole = trained(tmp_path / "whole", *saved, "trainer.total_training_steps=3")
    trained(tmp_path / "cut", *saved, "trainer.total_training_steps=2")
    cut = trained(tmp_path / "cut", *saved, "trainer.total_training_steps=3")
    assert cut.samples == whole.samples
    assert cut.checkpoints == (1, 2, 3)
    assert not list(cut.folder.glob("*.previous.*"))


def test_none_are_kept_where_none_are_wanted(tmp_path):
    run = trained(tmp_path, "trainer.run_folder_samples=0", "trainer.total_training_steps=1")
    assert not (run.folder / "samples.jsonl").exists()
    assert json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 1
    assert "Before and after" not in html_report(run)
