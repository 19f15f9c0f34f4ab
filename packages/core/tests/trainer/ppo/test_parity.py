import json
import math
from types import SimpleNamespace

import pytest
import torch
from rl_core.errors import WeightSyncError
from rl_core.trainer.ppo.parity import check_parity, largest_gap
from rl_core.trainer.ppo.parity_file import ParityFile
from rl_dataproto import DataProto, jagged_from_rows, object_array
from rl_testing.fakes.tokenizer import TinyTokenizer


def batch(rollout, trainer, mask=(1, 1)):
    return DataProto.from_dict(
        tensors={
            "prompts": jagged_from_rows([torch.tensor([2, 3])]),
            "responses": jagged_from_rows([torch.tensor([4, 5])]),
            "response_mask": jagged_from_rows([torch.tensor(mask, dtype=torch.bool)]),
            "rollout_log_probs": jagged_from_rows([torch.tensor(rollout)]),
            "old_log_probs": jagged_from_rows([torch.tensor(trainer)]),
        },
        non_tensors={"uid": object_array(["0000000-000000"])},
    )


def drawn_now(one, *current):
    return one.union(DataProto.from_dict(tensors={"on_policy_mask": jagged_from_rows([torch.tensor(current)])}))


@pytest.fixture
def check(tmp_path):
    """``check_parity`` of a run with these limits, and what it has written so far."""

    def check(one, *, step=1, is_first=False, max_gap=None, first=0.1, report_above=0.05):
        limits = SimpleNamespace(
            max_logprob_gap=max_gap, first_sync_tolerance=first, report_above=report_above, outliers=2
        )
        config = SimpleNamespace(
            trainer=SimpleNamespace(default_local_dir=str(tmp_path), parity=limits),
            actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(temperature=1.0, top_p=1.0, top_k=-1)),
        )
        check.file = check.file or ParityFile(config, TinyTokenizer(), total_steps=1000)
        return check_parity(one, limits, step, check.file, is_first=is_first)

    check.file = None
    check.records = lambda: [json.loads(line) for line in (tmp_path / "parity.jsonl").read_text().splitlines()]
    return check


def test_the_gap_is_taken_over_trained_tokens(check):
    metrics = check(batch([-1.0, -9.0], [-1.05, -2.0], mask=(1, 0)), is_first=True)

    assert metrics["training/logprob_gap/mean"] == pytest.approx(0.05, abs=1e-6)
    assert metrics["training/rollout_probs_diff_max"] == pytest.approx(math.exp(-1) - math.exp(-1.05), abs=1e-6)


def test_the_first_hand_over_has_a_limit_of_its_own(check):
    with pytest.raises(WeightSyncError, match=r"step 1: .*0\.5 nats.*first_sync_tolerance is 0\.1"):
        check(batch([-1.0, -2.0], [-1.5, -2.5]), is_first=True)
    assert check(batch([-1.0, -2.0], [-1.5, -2.5]), step=2)


def test_a_stop_threshold_holds_at_every_step_and_for_nan(check):
    with pytest.raises(WeightSyncError, match=r"max_logprob_gap is 0\.2"):
        check(batch([-1.0, -2.0], [-1.5, -2.5]), max_gap=0.2, step=5)
    nan = batch([-1.0, -2.0], [float("nan"), -2.5])
    with pytest.raises(WeightSyncError, match="nan") as caught:
        check(nan, max_gap=0.2, step=5)
    assert "cause: not a number: of 2 log-probs, 1 of the trainer are no finite numbers" in str(caught.value)


def test_the_error_says_why_and_where_to_look(check, tmp_path):
    with pytest.raises(WeightSyncError) as caught:
        check(batch([-1.0, -2.0], [-1.5, -2.5]), is_first=True)
    _, cause, advice, where = str(caught.value).split("\n")
    assert cause == "  cause: unknown: 2 tokens are too few to tell."
    assert advice.startswith("  what to do: ")
    assert str(tmp_path / "parity.jsonl") in where
    (record,) = check.records()
    assert record["step"] == 1
    assert [item["position"] for item in record["outliers"]] == [0, 1]


def test_no_log_probs_no_metrics(check, tmp_path):
    one = batch([-1.0, -2.0], [-1.5, -2.5])
    assert check(one.select(["response_mask", "old_log_probs"]), is_first=True) == {}
    assert not (tmp_path / "parity.jsonl").exists()


def test_tokens_of_older_weights_are_no_sign_of_a_broken_hand_over(check):
    mixed = drawn_now(batch([-1.0, -9.0], [-1.05, -2.0]), True, False)
    metrics = check(mixed, max_gap=0.1, step=3)
    assert metrics["training/logprob_gap/max"] == pytest.approx(0.05, abs=1e-6)
    assert metrics["training/staleness_gap/mean"] == pytest.approx(7.0)
    assert metrics["training/staleness_gap/max"] == pytest.approx(7.0)


def test_a_gap_of_current_tokens_stops_the_run_whatever_the_others_do(check):
    mixed = drawn_now(batch([-1.0, -2.0], [-9.0, -2.0]), True, False)
    with pytest.raises(WeightSyncError, match=r"8 nats"):
        check(mixed, max_gap=0.1, step=3)


def test_a_batch_of_older_weights_alone_proves_nothing(check):
    metrics = check(drawn_now(batch([-1.0, -2.0], [-9.0, -2.0]), False, False), max_gap=0.1, step=3)
    assert set(metrics) == {
        "training/staleness_gap/mean",
        "training/staleness_gap/max",
        "training/rollout_probs_diff_valid",
    }
    assert metrics["training/rollout_probs_diff_valid"] == 0.0


@pytest.mark.parametrize(
    ("is_first", "max_gap", "expected"),
    [
        (True, None, (0.1, "trainer.parity.first_sync_tolerance")),
        (True, 0.5, (0.1, "trainer.parity.first_sync_tolerance")),
        (True, 0.05, (0.05, "trainer.parity.max_logprob_gap")),
        (False, 0.5, (0.5, "trainer.parity.max_logprob_gap")),
        (False, None, (None, "trainer.parity.max_logprob_gap")),
    ],
)
def test_which_limit_holds(is_first, max_gap, expected):
    limits = SimpleNamespace(max_logprob_gap=max_gap, first_sync_tolerance=0.1)
    assert largest_gap(limits, is_first=is_first) == expected


def test_a_large_gap_is_shown_once_and_again_when_it_has_doubled(check, capsys):
    for step, gap in ((2, 0.06), (3, 0.07), (4, 0.13), (6, 0.01)):
        check(batch([-1.0, -2.0], [-1.0 - gap, -2.0 - gap]), step=step)
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step")]
    assert [line.split()[1] for line in shown] == ["2:", "4:"]
    # Step 6 is neither large nor due: of 1000 steps every fifth is.
    assert [record["step"] for record in check.records()] == [2, 3, 4]


def test_due_steps_are_kept_without_being_shown(check, capsys):
    for step in (1, 2, 5, 1000):
        check(batch([-1.0, -2.0], [-1.0, -2.0]), step=step)
    assert [record["step"] for record in check.records()] == [1, 5, 1000]
    assert {record["cause"]["name"] for record in check.records()} == {"none"}
    assert capsys.readouterr().out == ""


def test_a_new_run_puts_reports_aside_and_a_resumed_one_drops_what_comes_again(check, tmp_path):
    for step in (5, 10):
        check(batch([-1.0, -2.0], [-1.0, -2.0]), step=step)
    check.file.resume(5)
    assert [record["step"] for record in check.records()] == [5]
    check.file.start()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["parity.previous.1.jsonl"]
