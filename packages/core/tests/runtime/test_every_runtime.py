"""What a worker group promises, in each runtime: the loop does not know which one it has."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from rl_core.errors import ConfigError, DeadlineError, ShapeError, WorkerError
from rl_core.metrics import Metric
from rl_core.runtime.local import LocalWorkerGroup
from rl_core.single_controller.base import (
    Call,
    ClassWithInitArgs,
    CollectedFuture,
    Dispatch,
    DispatchInfo,
    Execute,
    Worker,
    WorkerFuture,
    create_colocated_worker_cls,
    make_mini_batch_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)
from rl_dataproto import DataProto, DataProtoFuture

TRAIN = make_nd_compute_dataproto_dispatch_fn("train")


def dealt(scope, value):
    return [Call((value + rank,)) if rank != 1 else None for rank in range(scope.world_size)]


class Plan:
    def split(self, dp_size):
        return [([dp_rank], f"plan{dp_rank}") for dp_rank in range(dp_size)]


class Actor(Worker):
    """dp 2 x tp 2 when there are four workers, of which the second of each pair answers; otherwise all answer."""

    def __init__(self, context, scale=1.0, *, farewell=None):
        super().__init__(context)
        self.scale, self.farewell, self.asked, self.plan = scale, farewell, 0, None

    def dispatch_info(self, mesh_name):
        self.asked += 1
        if self.world_size == 4:
            return DispatchInfo(self.rank // 2, 2, self.rank % 2 == 1)
        return DispatchInfo(self.rank, self.world_size, True)

    def close(self):
        if self.farewell is not None:
            Path(self.farewell, str(self.rank)).write_text("closed")

    def attribute(self, name):
        return getattr(self, name)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def add_rank(self, data: DataProto, *, scale: float = 1.0) -> DataProto:
        """Add the rank to every row."""
        return DataProto.from_dict({"x": data.batch["x"] * scale + self.rank})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def add_rank_later(self, data):
        return self.add_rank(data)

    @register(dispatch_mode=TRAIN)
    def on_mesh(self, data):
        x = data.batch["x"] * self.scale
        return DataProto.from_dict({"x": x, "rank": torch.full_like(x, self.rank)})

    @register(dispatch_mode=TRAIN)
    async def on_mesh_async(self, data):
        await asyncio.sleep(0.001)
        return self.on_mesh(data)

    @register(dispatch_mode=TRAIN)
    def forgets(self, data):
        return None

    @register(dispatch_mode=TRAIN)
    def whole(self, data):
        return data

    @register(dispatch_mode=make_mini_batch_dispatch_fn("train"))
    def update(self, data):
        self.plan = data.meta_info["mini_batch_plan"]
        return {"rows": Metric(len(data), "sum"), "rank": Metric(self.rank, "max")}

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def who(self):
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def echo(self, value):
        return self.rank, value

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, materialize_futures=False)
    def kind_of(self, value):
        return isinstance(value, WorkerFuture), value.result(30.0)

    @register(dispatch_mode=Dispatch.ALL_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def echo_of_zero(self, value):
        return self.rank, value

    @register(dispatch_mode=Dispatch.DP_COMPUTE)
    def dealt_item(self, value):
        return self.rank, value

    @register(dispatch_mode=Dispatch.DP_COMPUTE_METRIC)
    def measured(self, data):
        return len(data)

    @register(dispatch_mode=Dispatch.DIRECT_ROLLOUT_METHOD)
    def direct(self):
        return self.rank

    @register(dispatch_mode={"dispatch_fn": dealt, "collect_fn": lambda scope, outputs: sum(outputs)})
    def custom(self, value):
        return value * 10

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def place(self):
        own = self.context
        return own.rank, own.world_size, own.local_rank, own.local_world_size, own.device

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def meets(self, value):
        pair = self.collective.subgroup([self.rank // 2 * 2, self.rank // 2 * 2 + 1])
        everybody = self.collective.all_gather_object((self.rank, value))
        return everybody, pair.broadcast_object(self.rank, 1)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def writes(self, data):
        data.meta_info[f"rank{self.rank}"] = True
        data.batch["x"] = data.batch["x"] + self.rank
        self.collective.barrier()
        return sorted(data.meta_info), data.batch["x"].tolist()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def standing(self):
        return os.getcwd()


class Broken(Worker):
    def __init__(self, context):
        super().__init__(context)
        if context.rank == 1:
            raise OSError("no such model")


class Sleeper(Worker):
    @register(dispatch_mode=Dispatch.RANK_ZERO)
    async def sleep(self):
        await asyncio.sleep(30.0)


def batch(*rows, **meta):
    return DataProto.from_dict({"x": torch.tensor(rows, dtype=torch.float64)}, meta_info=meta)


def rows(data):
    return data.batch["x"].tolist()


@pytest.fixture(scope="module", params=["local", pytest.param("ray", marks=pytest.mark.heavy)])
def make(request):
    if request.param == "ray":
        yield request.getfixturevalue("ray_groups")
        return
    started = []

    def build(worker_cls, world_size, *args, **kwargs):
        started.append(LocalWorkerGroup(worker_cls, world_size, *args, **kwargs))
        return started[-1]

    yield build
    for group in started:
        group.shutdown()


@pytest.fixture(scope="module")
def four(make):
    return make(Actor, 4, name="actor")


@pytest.fixture(scope="module")
def two(make):
    return make(Actor, 2, scale=5.0, name="critic")


def test_every_worker_knows_its_place(four):
    assert four.place() == [(rank, 4, rank, 4, "cpu") for rank in range(4)]
    assert four.worker_names == ["actor/0", "actor/1", "actor/2", "actor/3"]
    assert len(four.workers) == 4


def test_arguments_reach_every_constructor(two):
    assert two.execute_all_sync("attribute", "scale") == [5.0, 5.0]


def test_relative_paths_mean_the_same_everywhere(two):
    assert two.standing() == [os.getcwd()] * 2


def test_a_call_splits_runs_and_gathers(four, two):
    assert rows(four.add_rank(batch(0, 1, 2, 3))) == [0, 2, 4, 6]
    assert rows(two.add_rank(data=batch(1, 2), scale=10.0)) == [10, 21]
    with pytest.raises(ShapeError):
        four.add_rank(batch(0, 1, 2))


def test_padding_is_dropped_again(two):
    data = DataProto.from_dict({"x": torch.tensor([0.0, 1.0, 2.0])}, auto_padding=True)
    assert rows(two.add_rank(data)) == [0, 1, 3]
    assert rows(two.add_rank_later(data).get()) == [0, 1, 3]
    assert len(data) == 3


@pytest.mark.parametrize("method", ["on_mesh", "on_mesh_async"])
def test_a_mesh_splits_by_its_own_ranks(four, method):
    result = getattr(four, method)(batch(0, 1, 2))
    assert rows(result) == [0, 1, 2]
    assert result.batch["rank"].tolist() == [1, 1, 3]
    assert len(getattr(four, method)(batch(0).slice(0, 0))) == 0
    assert four.execute_all_sync("attribute", "asked") == [1, 1, 1, 1]


def test_a_forgotten_result_names_method_and_rank(four):
    with pytest.raises(WorkerError, match=r"actor\.forgets returned None on rank 1"):
        four.forgets(batch(0, 1))


def test_an_update_follows_the_plan_and_merges_metrics(four):
    metrics = four.update(batch(5, 6, 7, mini_batch_plan=Plan()))
    assert (metrics["rows"].value, metrics["rank"].value) == (2, 3)
    assert four.execute_all_sync("attribute", "plan") == ["plan0", "plan0", "plan1", "plan1"]


def test_lists_are_dealt_only_where_that_is_asked_for(four):
    items = [1, 2, 3, 4]
    assert four.echo(items) == [(rank, items) for rank in range(4)]
    assert four.echo_of_zero(items) == (0, items)
    assert four.dealt_item(items) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    with pytest.raises(ShapeError, match=r"actor\.dealt_item: argument 0 has 2 items"):
        four.dealt_item([7, 8])


def test_a_direct_method_is_refused(four):
    with pytest.raises(NotImplementedError, match=r"actor\.direct is registered as DIRECT_ROLLOUT_METHOD"):
        four.direct()


def test_a_custom_mode_may_leave_workers_out(four):
    assert four.custom(1) == 10 + 30 + 40


def test_any_method_can_be_executed_by_name(two):
    assert two.execute_all_sync("echo", 1) == [(0, 1), (1, 1)]
    assert [future.result() for future in two.execute_all("echo", 1)] == [(0, 1), (1, 1)]
    assert [future.result() for future in two.execute_all_async("echo", value=1)] == [(0, 1), (1, 1)]
    assert two.execute_rank_zero_sync("echo", 1) == (0, 1)
    assert two.execute_rank_zero("echo", 1).result() == (0, 1)
    assert two.execute_rank_zero_async("echo", 1).result() == (0, 1)


def test_functions_are_sent_to_the_workers(two):
    offset = 100
    result = two.execute_with_func_generator(
        lambda worker, data: DataProto.from_dict({"x": worker.add_rank(data).batch["x"] + offset}), batch(0, 0)
    )
    assert rows(result) == [100, 101]
    assert two.execute_func_rank_zero(lambda values: sum(values) + offset, [1, 2]) == 103
    address, port = two.get_master_addr_port()
    assert address
    assert 1024 <= port < 65536


def test_started_calls_return_futures_of_the_shape_of_their_result(two):
    assert two.who.start().result() == 0
    assert [future.result() for future in two.echo.start("x")] == [(0, "x"), (1, "x")]
    assert [future.result() for future in two.dealt_item.start([7, 8])] == [(0, 7), (1, 8)]
    assert [future.result() for future in two.measured.start(batch(1, 2, 3, 4))] == [2, 2]
    assert two.echo_of_zero.start("x").result() == (0, "x")
    assert two.custom.start(1).result() == 10
    for method in (two.add_rank, two.on_mesh, two.on_mesh_async):
        future = method.start(batch(1, 1))
        assert isinstance(future, DataProtoFuture)
        assert len(future.get()) == 2
    metrics = two.update.start(batch(5, 6, mini_batch_plan=Plan()))
    assert isinstance(metrics, CollectedFuture)
    assert metrics.result()["rows"].value == 2


def test_a_future_goes_from_group_to_group_and_back(four, two):
    there = two.on_mesh(four.on_mesh.start(batch(*range(5))))
    assert rows(there) == [0, 5, 10, 15, 20]
    assert there.batch["rank"].tolist() == [0, 0, 0, 1, 1]
    back = four.on_mesh(two.on_mesh.start(batch(*range(5))))
    assert rows(back) == [0, 5, 10, 15, 20]
    assert back.batch["rank"].tolist() == [1, 1, 1, 3, 3]
    assert rows(two.on_mesh(two.on_mesh.start(two.on_mesh.start(batch(1, 2))))) == [125, 250]


def test_futures_are_waited_for_on_the_worker_unless_it_asks_for_them(two):
    assert two.dealt_item(two.echo.start("x")) == [(0, (0, "x")), (1, (1, "x"))]
    assert two.echo(two.custom.start(1)) == [(0, 10), (1, 10)]
    assert two.kind_of(two.who.start()) == [(True, 0), (True, 0)]


def test_rows_of_every_kind_arrive_as_they_were(four):
    words = torch.nested.nested_tensor([torch.arange(n) for n in (3, 1, 4)], layout=torch.jagged)
    names = np.array(["a", None, {"deep": [1, 2]}], dtype=object)
    data = DataProto.from_dict(
        {"words": words, "half": torch.tensor([1, 2, 3], dtype=torch.bfloat16)},
        non_tensors={"names": names, "numbers": np.arange(3.0)},
        meta_info={"temperature": 0.5},
    )
    result = four.whole(data)
    assert [row.tolist() for row in result.batch["words"].unbind()] == [[0, 1, 2], [0], [0, 1, 2, 3]]
    assert result.batch["half"].dtype is torch.bfloat16
    assert result.batch["half"].tolist() == [1, 2, 3]
    assert result.non_tensor_batch["names"].tolist() == names.tolist()
    assert result.non_tensor_batch["numbers"].tolist() == [0, 1, 2]
    assert result.meta_info["temperature"] == 0.5


def test_workers_meet(four):
    everybody = [(rank, "x") for rank in range(4)]
    assert four.meets("x") == [(everybody, 1), (everybody, 1), (everybody, 3), (everybody, 3)]


def test_what_a_worker_adds_to_a_batch_is_its_own(two):
    data = batch(1.0)
    assert two.writes(data) == [(["rank0"], [1.0]), (["rank1"], [2.0])]
    assert data.meta_info == {}
    assert rows(data) == [1.0]


def test_a_mistake_of_the_caller_breaks_nothing(two):
    with pytest.raises(TypeError, match="wants a DataProto"):
        two.add_rank([1, 2])
    assert two.who() == 0


def test_fused_roles_share_workers_that_end_with_the_last_view(make, tmp_path):
    roles = {
        "actor": ClassWithInitArgs(Actor, 2.0),
        "critic": ClassWithInitArgs(Actor, scale=5.0, farewell=str(tmp_path)),
    }
    group = make(create_colocated_worker_cls(roles), 2, name="all")
    views = group.spawn({"actor", "critic"})
    assert rows(group.critic_on_mesh(batch(1))) == [5]
    assert rows(views["actor"].on_mesh(batch(1, 2, 3))) == [2, 4, 6]
    assert rows(views["critic"].on_mesh_async(views["actor"].on_mesh.start(batch(1, 2, 3)))) == [10, 20, 30]
    assert views["actor"].place() == views["critic"].place()
    pids = [view.execute_func_rank_zero(os.getpid) for view in views.values()]
    assert pids[0] == pids[1]
    assert views["critic"].name == "all.critic"
    with pytest.raises(ConfigError, match="no role rm; its roles are actor, critic"):
        group.spawn(["rm"])

    views["actor"].shutdown()
    views["actor"].shutdown()
    with pytest.raises(WorkerError, match=r"'all\.actor' was shut down; who cannot be called"):
        views["actor"].who()
    assert rows(views["critic"].on_mesh(batch(1))) == [5]
    assert not list(tmp_path.iterdir())
    views["critic"].shutdown()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    with pytest.raises(WorkerError, match=r"'all' was shut down; critic\.who cannot be called"):
        group.critic_who()


def test_a_constructor_that_fails_is_named(make):
    with pytest.raises(WorkerError, match=r"__init__.* on rank 1 of .*failed: OSError: no such model"):
        make(Broken, 2, name="unborn")


def test_a_coroutine_that_takes_too_long_ends_at_the_deadline(make):
    with pytest.raises(DeadlineError, match=r"sleep .*on rank 0 of .*did not finish within 0\.5 s"):
        make(Sleeper, 1, deadline_s=0.5, name="late").sleep()
