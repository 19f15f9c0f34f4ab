import pytest
import torch
from rl_core.errors import ShapeError, WorkerError
from rl_core.single_controller.base.dispatch import BUILTIN_MODES, Dispatch, DispatchMode, as_dispatch_mode
from rl_dataproto import DataProto


def batch(*rows, auto_padding=False, **meta):
    return DataProto.from_dict(
        {"x": torch.tensor(rows, dtype=torch.float64)},
        {"uid": [f"u{row}" for row in rows]},
        meta,
        auto_padding=auto_padding,
    )


def rows_of(data):
    assert list(data.non_tensor_batch["uid"]) == [f"u{int(x)}" for x in data.batch["x"]]
    return [int(x) for x in data.batch["x"]]


def dispatch(mode, scope, *args, **kwargs):
    return BUILTIN_MODES[mode].dispatch_fn(scope, *args, **kwargs)


def collect(mode, scope, outputs):
    return BUILTIN_MODES[mode].collect_fn(scope, outputs)


def test_every_mode_is_there():
    assert set(BUILTIN_MODES) == set(Dispatch)


def test_rank_zero_calls_one_worker_and_returns_its_output(make_scope):
    calls = dispatch(Dispatch.RANK_ZERO, make_scope(3), 1, flag=True)
    assert (calls[0].args, calls[0].kwargs) == ((1,), {"flag": True})
    assert calls[1:] == [None, None]
    assert collect(Dispatch.RANK_ZERO, make_scope(3), ["only"]) == "only"


@pytest.mark.parametrize("mode", [Dispatch.ONE_TO_ALL, Dispatch.ALL_TO_ALL])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_lists_as_long_as_the_group_still_go_whole_to_every_worker(make_scope, mode, world_size):
    paths = [f"part{rank}" for rank in range(world_size)]
    calls = dispatch(mode, make_scope(world_size), paths, names=paths)
    assert len(calls) == world_size
    assert all(call.args[0] is paths and call.kwargs["names"] is paths for call in calls)
    assert collect(mode, make_scope(world_size), [[1], [2]]) == [[1], [2]]


def test_dp_compute_deals_one_item_to_each_worker(make_scope):
    calls = dispatch(Dispatch.DP_COMPUTE, make_scope(3), [1, 2, 3], scale=(10, 20, 30))
    assert [call.args for call in calls] == [(1,), (2,), (3,)]
    assert [call.kwargs for call in calls] == [{"scale": 10}, {"scale": 20}, {"scale": 30}]
    assert collect(Dispatch.DP_COMPUTE, make_scope(3), [1, 2, 3]) == [1, 2, 3]


def test_dp_compute_says_what_it_wants(make_scope):
    with pytest.raises(ShapeError, match=r"actor\.update: argument 0 has 2 items; .* each of the 3 workers"):
        dispatch(Dispatch.DP_COMPUTE, make_scope(3), [1, 2])
    with pytest.raises(ShapeError, match="argument 'scale' has 4 items"):
        dispatch(Dispatch.DP_COMPUTE, make_scope(3), [1, 2, 3], scale=[1, 2, 3, 4])
    with pytest.raises(TypeError, match=r"argument 0 is a str; .* ONE_TO_ALL"):
        dispatch(Dispatch.DP_COMPUTE, make_scope(3), "abc")


@pytest.mark.parametrize(
    ("world_size", "expected"), [(1, [[0, 1, 2, 3]]), (2, [[0, 1], [2, 3]]), (4, [[0], [1], [2], [3]])]
)
def test_proto_cuts_equal_pieces_and_puts_them_back(make_scope, world_size, expected):
    scope = make_scope(world_size)
    data = batch(0, 1, 2, 3, temperature=0.7)
    calls = dispatch(Dispatch.DP_COMPUTE_PROTO, scope, data)
    assert [rows_of(call.args[0]) for call in calls] == expected
    assert all(call.args[0].meta_info["temperature"] == 0.7 for call in calls)
    whole = collect(Dispatch.DP_COMPUTE_PROTO, scope, [call.args[0] for call in calls])
    assert rows_of(whole) == [0, 1, 2, 3]


def test_proto_splits_batches_and_nothing_else(make_scope):
    names = ["a", "b"]
    calls = dispatch(Dispatch.DP_COMPUTE_PROTO, make_scope(2), batch(0, 1), names, other=batch(2, 3), flag=True)
    assert [rows_of(call.kwargs["other"]) for call in calls] == [[2], [3]]
    assert all(call.args[1] is names and call.kwargs["flag"] is True for call in calls)


def test_proto_refuses_rows_that_do_not_divide(make_scope):
    with pytest.raises(ShapeError, match=r"actor\.update: 124 rows do not divide into 15 equal pieces"):
        dispatch(Dispatch.DP_COMPUTE_PROTO, make_scope(15), batch(*range(124)))


def test_proto_wants_a_batch(make_scope):
    with pytest.raises(TypeError, match=r"wants a DataProto; got list, int"):
        dispatch(Dispatch.DP_COMPUTE_PROTO, make_scope(2), [1, 2], flag=1)
    with pytest.raises(TypeError, match="got no argument"):
        dispatch(Dispatch.DP_COMPUTE_PROTO, make_scope(2))


def test_padding_never_reaches_the_caller(make_scope):
    scope = make_scope(4)
    data = batch(0, 1, 2, 3, 4, auto_padding=True)
    calls = dispatch(Dispatch.DP_COMPUTE_PROTO, scope, data)
    assert [rows_of(call.args[0]) for call in calls] == [[0, 1], [2, 3], [4, 4], [4, 4]]
    assert rows_of(data) == [0, 1, 2, 3, 4]
    assert rows_of(collect(Dispatch.DP_COMPUTE_PROTO, scope, [call.args[0] for call in calls])) == [0, 1, 2, 3, 4]


def test_padding_that_cannot_be_told_from_data_is_an_error(make_scope):
    scope = make_scope(2)
    dispatch(Dispatch.DP_COMPUTE_PROTO, scope, batch(0, 1, 2, auto_padding=True))
    with pytest.raises(WorkerError, match="got 3 rows and 1 of padding and returned 8"):
        collect(Dispatch.DP_COMPUTE_PROTO, scope, [batch(0, 0, 1, 1), batch(2, 2, 2, 2)])


def test_padding_wants_batches_of_one_length(make_scope):
    with pytest.raises(ShapeError, match=r"batches of one length; got \[1, 3\]"):
        dispatch(Dispatch.DP_COMPUTE_PROTO, make_scope(2), batch(0, 1, 2, auto_padding=True), batch(0))


def test_metadata_may_come_back_without_rows(make_scope):
    scope = make_scope(2)
    dispatch(Dispatch.DP_COMPUTE_PROTO, scope, batch(0, 1, 2, auto_padding=True))
    outputs = [DataProto(meta_info={"metrics": {"loss": value}}) for value in (1.0, 2.0)]
    whole = collect(Dispatch.DP_COMPUTE_PROTO, scope, outputs)
    assert len(whole) == 0
    assert whole.meta_info["metrics"]


@pytest.mark.parametrize(("output", "found"), [(None, "None"), ([1], "a list")])
def test_proto_outputs_are_batches(make_scope, output, found):
    with pytest.raises(WorkerError, match=rf"actor\.update returned {found} on rank 1"):
        collect(Dispatch.DP_COMPUTE_PROTO, make_scope(2), [batch(0), output])


def test_with_func_sends_the_function_to_every_worker(make_scope):
    calls = dispatch(Dispatch.DP_COMPUTE_PROTO_WITH_FUNC, make_scope(2), rows_of, batch(0, 1))
    assert [call.args[0] for call in calls] == [rows_of, rows_of]
    assert [rows_of(call.args[1]) for call in calls] == [[0], [1]]
    with pytest.raises(TypeError, match=r"first argument must be the function .*; got DataProto"):
        dispatch(Dispatch.DP_COMPUTE_PROTO_WITH_FUNC, make_scope(2), batch(0, 1))


def test_metric_mode_returns_every_workers_output(make_scope):
    scope = make_scope(2)
    calls = dispatch(Dispatch.DP_COMPUTE_METRIC, scope, batch(0, 1, 2, 3))
    assert [rows_of(call.args[0]) for call in calls] == [[0, 1], [2, 3]]
    assert collect(Dispatch.DP_COMPUTE_METRIC, scope, [{"loss": 1.0}, {"loss": 2.0}]) == [{"loss": 1.0}, {"loss": 2.0}]
    with pytest.raises(ShapeError, match="3 rows do not divide into 2"):
        dispatch(Dispatch.DP_COMPUTE_METRIC, scope, batch(0, 1, 2))


def test_metric_mode_repeats_no_row(make_scope):
    calls = dispatch(Dispatch.DP_COMPUTE_METRIC, make_scope(4), batch(0, 1, 2, auto_padding=True))
    assert [rows_of(call.args[0]) for call in calls] == [[0], [1], [2], []]


def test_direct_methods_are_not_for_the_controller(make_scope):
    with pytest.raises(NotImplementedError, match=r"actor\.update is registered as DIRECT_ROLLOUT_METHOD"):
        dispatch(Dispatch.DIRECT_ROLLOUT_METHOD, make_scope(2), 1)


def test_a_mode_can_be_two_functions():
    mode = as_dispatch_mode({"dispatch_fn": dispatch, "collect_fn": collect})
    assert mode == DispatchMode("dispatch", dispatch, collect)
    assert as_dispatch_mode(mode) is mode


@pytest.mark.parametrize(
    "mode",
    [
        {"dispatch_fn": dispatch},
        {"dispatch_fn": dispatch, "collect_fn": None},
        {"dispatch_fn": dispatch, "collect_fn": collect, "execute": 1},
        {},
    ],
)
def test_a_dict_that_is_no_mode(mode):
    with pytest.raises(TypeError, match="has two functions, dispatch_fn and collect_fn; got"):
        as_dispatch_mode(mode)


def test_something_that_is_no_mode():
    with pytest.raises(TypeError, match=r"member of Dispatch.*; got 3"):
        as_dispatch_mode(3)
