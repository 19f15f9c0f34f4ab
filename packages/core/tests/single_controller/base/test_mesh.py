from dataclasses import dataclass

import numpy as np
import pytest
import torch
from rl_core.contracts.mini_batch import PLAN_KEY as CONTRACT_KEY
from rl_core.contracts.mini_batch import MiniBatch, MiniBatchPlan
from rl_core.errors import WorkerError
from rl_core.metrics import Metric
from rl_core.single_controller.base.mesh import (
    BALANCE_KEY,
    PLAN_KEY,
    collecting_ranks,
    make_mini_batch_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
    make_nd_gather_dataproto_dispatch_fn,
)
from rl_dataproto import DataProto, jagged_from_rows

TRAIN = make_nd_compute_dataproto_dispatch_fn("train")
UPDATE = make_mini_batch_dispatch_fn("train")

# dp 2 x tp 2, tp innermost: the first of each pair answers.
DP2_TP2 = [(0, 2, True), (0, 2, False), (1, 2, True), (1, 2, False)]
# pp 2 x dp 2, stages outermost: only the last stage answers.
PP2_DP2 = [(0, 2, False), (1, 2, False), (0, 2, True), (1, 2, True)]
# dp order is not rank order.
REVERSED = [(2, 3, True), (1, 3, True), (0, 3, True)]


def batch(*rows, **meta):
    return DataProto.from_dict(
        {"x": torch.tensor(rows, dtype=torch.float64)}, {"uid": [f"u{row}" for row in rows]}, meta
    )


def rows_of(data):
    assert list(data.non_tensor_batch["uid"]) == [f"u{int(x)}" for x in data.batch["x"]]
    return [int(x) for x in data.batch["x"]]


def pieces(calls):
    return [rows_of(call.args[0]) for call in calls]


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        (DP2_TP2, [[0, 1, 2], [0, 1, 2], [3, 4], [3, 4]]),
        (PP2_DP2, [[0, 1, 2], [3, 4], [0, 1, 2], [3, 4]]),
        (REVERSED, [[4], [2, 3], [0, 1]]),
        ([(0, 1, True)], [[0, 1, 2, 3, 4]]),
    ],
)
def test_peers_get_the_same_piece_and_pieces_differ_by_one_row_at_most(make_scope, mesh, expected):
    calls = TRAIN.dispatch_fn(make_scope(mesh), batch(*range(5)))
    assert pieces(calls) == expected
    assert [call.answers for call in calls] == [collects for _, _, collects in mesh]


@pytest.mark.parametrize("mesh", [DP2_TP2, PP2_DP2, REVERSED])
def test_what_answering_ranks_return_is_put_together_in_data_parallel_order(make_scope, mesh):
    scope = make_scope(mesh)
    calls = TRAIN.dispatch_fn(scope, batch(*range(5)))
    outputs = [call.args[0] if call.answers else "not looked at" for call in calls]
    assert rows_of(TRAIN.collect_fn(scope, outputs)) == [0, 1, 2, 3, 4]


def test_pieces_may_be_empty(make_scope):
    scope = make_scope(REVERSED)
    calls = TRAIN.dispatch_fn(scope, batch(7))
    assert pieces(calls) == [[], [], [7]]
    assert rows_of(TRAIN.collect_fn(scope, [call.args[0] for call in calls])) == [7]


def test_no_rows_at_all(make_scope):
    scope = make_scope(DP2_TP2)
    calls = TRAIN.dispatch_fn(scope, batch(7).slice(0, 0))
    assert pieces(calls) == [[], [], [], []]
    assert len(TRAIN.collect_fn(scope, [call.args[0] for call in calls])) == 0


def test_other_arguments_are_not_split(make_scope):
    names = ["a", "b"]
    calls = TRAIN.dispatch_fn(make_scope(DP2_TP2), batch(0, 1), names, flag=True)
    assert all(call.args[1] is names and call.kwargs == {"flag": True} for call in calls)


def test_an_answer_that_is_none_names_method_and_rank(make_scope):
    scope = make_scope(PP2_DP2)
    with pytest.raises(
        WorkerError, match=r"actor\.update returned None on rank 3, which answers for dp_rank 1 .*'train'"
    ):
        TRAIN.collect_fn(scope, [None, None, batch(0), None])


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ([(0, 2, True), (1, 2, False)], r"answer for dp_rank 1 of mesh 'train', but none does \(its workers: \[1\]\)"),
        ([(0, 1, True), (0, 1, True)], r"answer for dp_rank 0 .* but ranks \[0, 1\] do"),
        ([(0, 2, True), (0, 2, False)], r"dp_rank 1 .* none does \(its workers: none\)"),
        ([(0, 2, True), (1, 3, True)], r"disagree about dp_size of mesh 'train': \[2, 3\]"),
        ([(0, 2, True), (2, 2, True)], r"rank 1 says dp_rank 2 .* whose dp_size is 2"),
        ([(-1, 1, True)], r"rank 0 says dp_rank -1"),
    ],
)
def test_answers_that_form_no_mesh(make_scope, mesh, message):
    with pytest.raises(WorkerError, match=message):
        TRAIN.dispatch_fn(make_scope(mesh), batch(0, 1))


def test_who_answers(make_scope):
    assert collecting_ranks(make_scope(PP2_DP2), "train") == [2, 3]
    assert collecting_ranks(make_scope(REVERSED), "train") == [2, 1, 0]


@dataclass(frozen=True)
class Plan:
    """Deals every mini-batch round robin; stands for the controller's."""

    batches: tuple[tuple[int, ...], ...]

    def split(self, dp_size):
        parts = []
        for dp_rank in range(dp_size):
            mine = tuple(rows[dp_rank::dp_size] for rows in self.batches)
            rows = np.array(sorted({row for rows in mine for row in rows}), dtype=np.int64)
            local = tuple(tuple(int(np.searchsorted(rows, row)) for row in rows_) for rows_ in mine)
            parts.append((rows, Plan(local)))
        return parts


PLAN = Plan(((4, 1, 3), (0, 2)))


@pytest.mark.parametrize(
    ("mesh", "rows"),
    [
        ([(0, 1, True)], [[0, 1, 2, 3, 4]]),
        (DP2_TP2, [[0, 3, 4], [0, 3, 4], [1, 2], [1, 2]]),
        (PP2_DP2, [[0, 3, 4], [1, 2], [0, 3, 4], [1, 2]]),
        (REVERSED, [[3], [1, 2], [0, 4]]),
    ],
)
def test_the_plan_decides_the_rows(make_scope, mesh, rows):
    data = batch(*range(5), **{PLAN_KEY: PLAN, "temperature": 0.7})
    calls = UPDATE.dispatch_fn(make_scope(mesh), data, 5, flag=True)
    assert pieces(calls) == rows
    assert all(call.args[1:] == (5,) and call.kwargs == {"flag": True} for call in calls)
    assert all(call.args[0].meta_info["temperature"] == 0.7 for call in calls)
    assert data.meta_info[PLAN_KEY] is PLAN


def test_every_mini_batch_is_whole_over_the_workers(make_scope):
    calls = UPDATE.dispatch_fn(make_scope(REVERSED), batch(*range(5), **{PLAN_KEY: PLAN}))
    for number, rows in enumerate(PLAN.batches):
        seen = [
            rows_of(call.args[0])[local] for call in calls for local in call.args[0].meta_info[PLAN_KEY].batches[number]
        ]
        assert sorted(seen) == sorted(rows)


def test_more_workers_than_rows(make_scope):
    calls = UPDATE.dispatch_fn(make_scope(REVERSED), batch(0, **{PLAN_KEY: Plan(((0,),))}))
    assert pieces(calls) == [[], [], [0]]
    assert calls[0].args[0].meta_info[PLAN_KEY] == Plan(((),))


def test_the_controllers_plan_is_followed(make_scope):
    batches = [MiniBatch(np.array(rows), totals=None, epoch=0, index=index) for index, rows in enumerate(PLAN.batches)]
    calls = UPDATE.dispatch_fn(make_scope(DP2_TP2), batch(*range(5), **{CONTRACT_KEY: MiniBatchPlan(tuple(batches))}))
    for number, rows in enumerate(PLAN.batches):
        seen = []
        for call in (calls[0], calls[2]):
            part = call.args[0]
            seen += np.array(rows_of(part))[part.meta_info[PLAN_KEY].batches[number].rows].tolist()
        assert sorted(seen) == sorted(rows)


def test_the_batch_may_be_passed_by_name(make_scope):
    calls = UPDATE.dispatch_fn(make_scope(REVERSED), batch=batch(*range(5), **{PLAN_KEY: PLAN}))
    assert [rows_of(call.kwargs["batch"]) for call in calls] == [[3], [1, 2], [0, 4]]


def test_metrics_of_answering_ranks_are_merged(make_scope):
    scope = make_scope(DP2_TP2)
    outputs = [
        {"loss": Metric(0.25, "sum"), "lr": Metric(0.1, "last")},
        None,
        DataProto(meta_info={"metrics": {"loss": Metric(0.5, "sum"), "lr": Metric(0.1, "last")}}),
        {"loss": Metric(99.0, "sum")},
    ]
    merged = UPDATE.collect_fn(scope, outputs)
    assert merged["loss"].value == 0.75
    assert merged["lr"].value == 0.1


@pytest.mark.parametrize(("output", "found"), [(None, "None"), (1.0, "a float"), (DataProto(), "a DataProto")])
def test_a_report_that_is_missing_names_method_and_rank(make_scope, output, found):
    with pytest.raises(WorkerError, match=rf"actor\.update returned {found} on rank 2; it must return metrics"):
        UPDATE.collect_fn(make_scope(DP2_TP2), [{}, None, output, None])


def test_an_update_wants_a_plan(make_scope):
    scope = make_scope(DP2_TP2)
    with pytest.raises(TypeError, match=r"wants meta_info\['mini_batch_plan'\]; found the keys \['temperature'\]"):
        UPDATE.dispatch_fn(scope, batch(0, 1, temperature=0.7))
    with pytest.raises(TypeError, match="first argument must be a DataProto with a mini-batch plan; got list"):
        UPDATE.dispatch_fn(scope, [0, 1])
    with pytest.raises(TypeError, match="got NoneType"):
        UPDATE.dispatch_fn(scope)
    planned = batch(*range(5), **{PLAN_KEY: PLAN})
    with pytest.raises(TypeError, match="rows of one batch; join the second one"):
        UPDATE.dispatch_fn(scope, planned, planned)


def test_gathering_gives_everybody_the_same_arguments_and_joins_what_answering_ranks_return(make_scope):
    gather = make_nd_gather_dataproto_dispatch_fn("train")
    scope = make_scope(DP2_TP2)
    calls = gather.dispatch_fn(scope, 0.5, wait=True)
    assert [(call.args, call.kwargs, call.answers) for call in calls] == [
        ((0.5,), {"wait": True}, collects) for _, _, collects in DP2_TP2
    ]
    assert rows_of(gather.collect_fn(scope, [batch(0), None, batch(1, 2), None])) == [0, 1, 2]


def ragged(*sizes, **meta):
    """Rows of ``sizes`` tokens, named by their place."""
    ids = jagged_from_rows([torch.zeros(size, dtype=torch.int64) for size in sizes])
    places = torch.arange(len(sizes), dtype=torch.float64)
    return DataProto.from_dict({"input_ids": ids, "x": places}, {"uid": [f"u{row}" for row in range(len(sizes))]}, meta)


@pytest.mark.parametrize("mesh", [DP2_TP2, PP2_DP2, REVERSED])
def test_balanced_rows_come_back_in_the_order_they_went(make_scope, mesh):
    sizes = (900, 800, 700, 600, 5, 4, 3, 2)
    scope = make_scope(mesh)
    calls = TRAIN.dispatch_fn(scope, ragged(*sizes, **{BALANCE_KEY: True}))
    sent = {tuple(rows) for rows in pieces(calls)}
    loads = [sum(sizes[row] for row in rows) for rows in sent]
    assert sorted(row for rows in sent for row in rows) == list(range(8))
    assert max(loads) - min(loads) < 800
    outputs = [call.args[0] if call.answers else "not looked at" for call in calls]
    assert rows_of(TRAIN.collect_fn(scope, outputs)) == list(range(8))


def test_rows_without_the_key_keep_their_order(make_scope):
    calls = TRAIN.dispatch_fn(make_scope(DP2_TP2), ragged(9, 8, 1, 1))
    assert pieces(calls) == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_a_worker_that_loses_balanced_rows_is_told(make_scope):
    scope = make_scope(DP2_TP2)
    calls = TRAIN.dispatch_fn(scope, ragged(9, 8, 1, 1, **{BALANCE_KEY: True}))
    outputs = [call.args[0].slice(0, 1) for call in calls]
    with pytest.raises(WorkerError, match="called with 4 rows and returned 2"):
        TRAIN.collect_fn(scope, outputs)
