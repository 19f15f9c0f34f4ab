import numpy as np
import torch
from rl_core.contracts.rollout import RolloutOutput
from rl_core.contracts.sampler import FailureKind
from rl_core.workers.rollout_rows import (
    RolloutFailure,
    RolloutRow,
    continued,
    joined_spans,
    pack_rows,
    response_columns,
    unpack_rows,
)


def output(tokens, version, reason="stop", log_probs=True):
    return RolloutOutput(
        request_id="a",
        token_ids=tokens,
        log_probs=tuple(-float(token) for token in tokens) if log_probs else None,
        finish_reason=reason,
        versions=((version, len(tokens)),),
        extras={"ranks": np.array(tokens)} if tokens else {},
    )


def test_a_cut_response_grows_by_its_continuation():
    cut = continued(RolloutRow(request_id="a"), output((4, 5), 1, "abort"), seconds=1.5)
    assert (cut.is_settled, cut.oldest_version, cut.versions) == (False, 1, ((1, 2),))
    whole = continued(cut, output((6,), 3), seconds=0.5)

    assert whole.token_ids.tolist() == [4, 5, 6]
    assert whole.log_probs.tolist() == [-4.0, -5.0, -6.0]
    assert whole.versions == ((1, 2), (3, 1))
    assert whole.extras["ranks"].tolist() == [4, 5, 6]
    assert (whole.is_settled, whole.oldest_version, whole.seconds) == (True, 1, 2.0)


def test_a_cut_without_tokens_changes_nothing_but_the_time():
    cut = continued(RolloutRow(request_id="a"), output((4, 5), 1, "abort"), seconds=1.0)
    again = continued(cut, output((), 2, "abort"), seconds=1.0)
    assert (again.token_ids.tolist(), again.versions, again.seconds) == ([4, 5], ((1, 2),), 2.0)
    assert again.extras["ranks"].tolist() == [4, 5]


def test_a_failure_leaves_nothing_of_the_response():
    cut = continued(RolloutRow(request_id="a"), output((4, 5), 1, "abort"), seconds=1.0)
    failed = continued(cut, RolloutFailure(FailureKind.LOST, "late"), seconds=1.0)
    assert (failed.is_settled, len(failed.token_ids), failed.versions) == (True, 0, ())


def test_spans_of_one_version_side_by_side_are_one():
    assert joined_spans(((1, 2), (2, 1)), ((2, 3), (4, 0), (5, 1))) == ((1, 2), (2, 4), (5, 1))
    assert joined_spans((), ()) == ()


def test_rows_survive_the_journey():
    rows = [
        continued(RolloutRow(request_id="a"), output((4, 5), 1, "abort"), seconds=1.0),
        continued(RolloutRow(request_id="b"), RolloutFailure(FailureKind.MALFORMED, "bad"), seconds=0.0),
        RolloutRow(request_id="c"),
    ]
    found = unpack_rows(pack_rows(rows, has_log_probs=True))
    assert [row.request_id for row in found] == ["a", "b", "c"]
    assert found[0].token_ids.tolist() == [4, 5]
    assert found[0].log_probs.tolist() == [-4.0, -5.0]
    assert found[0].versions == ((1, 2),)
    assert found[1].failure == RolloutFailure(FailureKind.MALFORMED, "bad")
    assert [row.is_settled for row in found] == [False, True, False]
    assert unpack_rows(pack_rows(rows[:1], has_log_probs=False))[0].log_probs is None
    assert unpack_rows(pack_rows([], has_log_probs=True)) == []


def test_columns_of_a_whole_response():
    cut = continued(RolloutRow(request_id="a"), output((4, 5), 1, "abort"), seconds=1.0)
    batch = response_columns([torch.tensor([1, 2])], [continued(cut, output((6,), 3), 1.0)], has_log_probs=True)
    assert batch.batch["input_ids"].unbind()[0].tolist() == [1, 2, 4, 5, 6]
    assert batch.batch["response_mask"].unbind()[0].tolist() == [True] * 3
    assert batch.batch["weight_version"].tolist() == [1]
