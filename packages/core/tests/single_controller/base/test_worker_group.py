import inspect

import pytest
import torch
from rl_core.errors import ConfigError, ShapeError, WorkerError
from rl_core.metrics import Metric
from rl_core.single_controller.base import (
    Call,
    ClassWithInitArgs,
    CollectedFuture,
    Dispatch,
    DispatchInfo,
    Execute,
    SoloCollective,
    Worker,
    WorkerContext,
    WorkerFuture,
    WorkerGroup,
    create_colocated_worker_cls,
    make_mini_batch_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)
from rl_core.single_controller.base.call import invoke
from rl_dataproto import DataProto, DataProtoFuture


class Later(WorkerFuture):
    """Runs its job when somebody asks, once."""

    def __init__(self, job):
        self.job, self.answers = job, []

    def result(self, timeout=None):
        if not self.answers:
            self.answers.append(self.job())
        return self.answers[0]

    def done(self):
        return bool(self.answers)


class DirectGroup(WorkerGroup):
    """The smallest runtime: every call runs in the caller when its result is wanted."""

    def __init__(self, worker_cls, world_size, name="actor"):
        super().__init__(worker_cls, world_size, name=name, deadline_s=9.0)
        self.shutdowns, self.submitted = 0, []
        self._workers = [worker_cls(context(rank, world_size)) for rank in range(world_size)]

    @property
    def workers(self):
        return self._workers

    def _submit(self, method, calls, *, materialize):
        self.submitted.append((method, list(calls), materialize))
        return [
            Later(lambda r=r, c=c: invoke(self._workers[r], method, c, materialize=materialize, timeout_s=9.0))
            for r, c in calls.items()
        ]

    def _gather(self, method, futures):
        return [future.result() for future in futures]

    def shutdown(self):
        self.shutdowns += 1


class Peers(SoloCollective):
    def __init__(self, rank, world_size):
        self.rank, self.world_size = rank, world_size


def context(rank, world_size):
    return WorkerContext(rank, world_size, rank, world_size, "cpu", Peers(rank, world_size))


def dealt(scope, value):
    return [Call((value + rank,)) if rank != 1 else None for rank in range(scope.world_size)]


class Plan:
    def split(self, dp_size):
        return [([dp_rank], f"plan{dp_rank}") for dp_rank in range(dp_size)]


class Actor(Worker):
    """dp 2 x tp 2 when there are four workers; the second of each pair answers."""

    asked = 0

    def dispatch_info(self, mesh_name):
        self.asked += 1
        if mesh_name == "nonsense":
            return "nonsense"
        if self.world_size < 4:
            return DispatchInfo(self.rank, self.world_size, True)
        return DispatchInfo(self.rank // 2, 2, self.rank % 2 == 1)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def add_rank(self, data: DataProto, *, scale: float = 1.0) -> DataProto:
        """Add the rank to every row."""
        return DataProto.from_dict({"x": data.batch["x"] * scale + self.rank})

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def add_rank_later(self, data):
        return self.add_rank(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"))
    def on_mesh(self, data):
        return DataProto.from_dict({"x": data.batch["x"], "rank": torch.full_like(data.batch["x"], self.rank)})

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"), blocking=False)
    def on_mesh_later(self, data):
        return self.on_mesh(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("nonsense"))
    def on_no_mesh(self, data):
        return data

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"))
    def forgets(self, data):
        return None

    @register(dispatch_mode=make_mini_batch_dispatch_fn("train"))
    def update(self, data):
        self.plan = data.meta_info["mini_batch_plan"]
        return {"rows": Metric(len(data), "sum"), "rank": Metric(self.rank, "max")}

    @register(dispatch_mode=make_mini_batch_dispatch_fn("train"), blocking=False)
    def update_later(self, data):
        return self.update(data)

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def who(self):
        return self.rank

    @register(dispatch_mode=Dispatch.RANK_ZERO, blocking=False)
    def who_later(self):
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def echo(self, value):
        return self.rank, value

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False, materialize_futures=False)
    def echo_later(self, value):
        return self.rank, value

    @register(dispatch_mode=Dispatch.ALL_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def echo_of_zero(self, value):
        return self.rank, value

    @register(dispatch_mode=Dispatch.DP_COMPUTE)
    def dealt_item(self, value):
        return self.rank, value

    @register(dispatch_mode=Dispatch.DIRECT_ROLLOUT_METHOD)
    def direct(self):
        return self.rank

    @register(dispatch_mode={"dispatch_fn": dealt, "collect_fn": lambda scope, outputs: sum(outputs)})
    def custom(self, value):
        return value * 10

    @register(dispatch_mode={"dispatch_fn": lambda scope, *args: [Call(args)], "collect_fn": lambda scope, outputs: 0})
    def custom_too_few(self):
        pass

    @register(dispatch_mode={"dispatch_fn": lambda scope: [None] * 3, "collect_fn": lambda scope, outputs: 0})
    def custom_nobody(self):
        pass

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def plain(self):
        return "parent"


class Child(Actor):
    def plain(self):
        return "child"


def batch(*rows, **meta):
    return DataProto.from_dict({"x": torch.tensor(rows, dtype=torch.float64)}, meta_info=meta)


def test_registered_methods_are_bound_and_others_are_not():
    group = DirectGroup(Actor, 2)
    assert group.who() == 0
    assert not hasattr(group, "dispatch_infos")
    assert not hasattr(group, "close")


def test_documentation_and_signature_are_kept():
    group = DirectGroup(Actor, 2)
    assert group.add_rank.__doc__ == "Add the rank to every row."
    assert group.add_rank.__name__ == "add_rank"
    signature = inspect.signature(group.add_rank)
    assert list(signature.parameters) == ["data", "scale"]
    assert signature.parameters["scale"].default == 1.0
    assert signature.return_annotation is DataProto


@pytest.mark.parametrize(("world_size", "expected"), [(1, [0, 1, 2, 3]), (2, [0, 1, 3, 4]), (4, [0, 2, 4, 6])])
def test_a_call_splits_runs_and_gathers(world_size, expected):
    result = DirectGroup(Actor, world_size).add_rank(batch(0, 1, 2, 3))
    assert result.batch["x"].tolist() == expected


def test_keyword_arguments_reach_every_worker():
    assert DirectGroup(Actor, 2).add_rank(data=batch(1, 2), scale=10.0).batch["x"].tolist() == [10, 21]


def test_a_mesh_is_asked_once():
    group = DirectGroup(Actor, 4)
    for _ in range(3):
        result = group.on_mesh(batch(0, 1, 2))
    assert result.batch["x"].tolist() == [0, 1, 2]
    assert result.batch["rank"].tolist() == [1, 1, 3]
    assert [worker.asked for worker in group.workers] == [1, 1, 1, 1]
    assert group.dispatch_info("train")[3] == DispatchInfo(1, 2, True)


def test_a_mesh_answer_of_another_kind_is_refused():
    with pytest.raises(WorkerError, match=r"rank 0 answered dispatch_info\('nonsense'\) with 'nonsense'"):
        DirectGroup(Actor, 2).on_no_mesh(batch(0))


def test_a_forgotten_result_names_method_and_rank():
    with pytest.raises(WorkerError, match=r"actor\.forgets returned None on rank 1"):
        DirectGroup(Actor, 4).forgets(batch(0, 1))


def test_an_update_follows_the_plan_and_merges_metrics():
    group = DirectGroup(Actor, 4)
    metrics = group.update(batch(5, 6, 7, mini_batch_plan=Plan()))
    assert metrics["rows"].value == 2
    assert metrics["rank"].value == 3
    assert [worker.plan for worker in group.workers] == ["plan0", "plan0", "plan1", "plan1"]


def test_lists_as_long_as_the_group_are_not_dealt():
    group = DirectGroup(Actor, 3)
    assert group.echo([1, 2, 3]) == [(0, [1, 2, 3]), (1, [1, 2, 3]), (2, [1, 2, 3])]
    assert group.echo_of_zero([1, 2, 3]) == (0, [1, 2, 3])
    assert group.execute_all_sync("echo", [1, 2, 3])[2] == (2, [1, 2, 3])
    assert group.execute_rank_zero_sync("echo", [1, 2, 3]) == (0, [1, 2, 3])


def test_only_dp_compute_deals_lists():
    group = DirectGroup(Actor, 3)
    assert group.dealt_item([7, 8, 9]) == [(0, 7), (1, 8), (2, 9)]
    with pytest.raises(ShapeError, match=r"actor\.dealt_item: argument 0 has 2 items"):
        group.dealt_item([7, 8])


def test_a_direct_method_is_refused_before_anyone_is_called():
    group = DirectGroup(Actor, 2)
    with pytest.raises(NotImplementedError, match=r"actor\.direct is registered as DIRECT_ROLLOUT_METHOD"):
        group.direct()
    assert group.submitted == []
    assert group.workers[1].direct() == 1


def test_a_custom_mode_may_leave_workers_out():
    group = DirectGroup(Actor, 3)
    assert group.custom(1) == 10 + 30
    assert group.submitted[-1][1] == [0, 2]


def test_a_custom_mode_must_speak_for_every_worker():
    group = DirectGroup(Actor, 3)
    with pytest.raises(TypeError, match=r"<lambda> must give a Call \(or None\) for each of the 3 workers"):
        group.custom_too_few()
    with pytest.raises(TypeError, match="calls no worker at all"):
        group.custom_nobody()


def test_without_blocking_a_batch_is_a_batch_future():
    group = DirectGroup(Actor, 2)
    future = group.add_rank_later(batch(0, 1, 2, 3))
    assert isinstance(future, DataProtoFuture)
    assert future.get().batch["x"].tolist() == [0, 1, 3, 4]


def test_without_blocking_padding_is_dropped_too():
    data = DataProto.from_dict({"x": torch.tensor([0.0, 1.0, 2.0])}, auto_padding=True)
    assert DirectGroup(Actor, 2).add_rank_later(data).get().batch["x"].tolist() == [0, 1, 3]


def test_without_blocking_a_mesh_keeps_its_answers():
    result = DirectGroup(Actor, 4).on_mesh_later(batch(0, 1, 2)).get()
    assert result.batch["rank"].tolist() == [1, 1, 3]


def test_without_blocking_other_results_are_futures_of_their_shape():
    group = DirectGroup(Actor, 2)
    assert group.who_later().result() == 0
    assert [future.result() for future in group.echo_later("x")] == [(0, "x"), (1, "x")]
    metrics = group.update_later(batch(5, 6, mini_batch_plan=Plan()))
    assert isinstance(metrics, CollectedFuture)
    assert metrics.result()["rows"].value == 2


@pytest.mark.parametrize("producers", [1, 2, 3])
@pytest.mark.parametrize("consumers", [1, 2, 3])
def test_a_future_goes_from_group_to_group(producers, consumers):
    future = DirectGroup(Actor, producers, "producer").add_rank_later(batch(*[0] * 6))
    result = DirectGroup(Actor, consumers, "consumer").add_rank(future)
    added = [rank for rank in range(producers) for _ in range(6 // producers)]
    expected = [
        value + rank
        for value, rank in zip(added, [r for r in range(consumers) for _ in range(6 // consumers)], strict=True)
    ]
    assert result.batch["x"].tolist() == expected


def test_a_future_with_uneven_rows_goes_over_a_mesh():
    future = DirectGroup(Actor, 1, "producer").add_rank_later(batch(*range(5)))
    result = DirectGroup(Actor, 4, "consumer").on_mesh(future)
    assert result.batch["x"].tolist() == [0, 1, 2, 3, 4]
    assert result.batch["rank"].tolist() == [1, 1, 1, 3, 3]


def test_a_list_of_futures_is_dealt_and_waited_for():
    group = DirectGroup(Actor, 2)
    assert group.dealt_item(group.echo_later("x")) == [(0, (0, "x")), (1, (1, "x"))]


def test_materialize_futures_reaches_the_runtime():
    group = DirectGroup(Actor, 2)
    group.echo("x")
    group.echo_later("x")
    assert [materialize for _, _, materialize in group.submitted] == [True, False]


def test_any_method_can_be_executed_by_name():
    group = DirectGroup(Actor, 2)
    assert [future.result() for future in group.execute_all("echo", 1)] == [(0, 1), (1, 1)]
    assert [future.result() for future in group.execute_all_async("echo", value=1)] == [(0, 1), (1, 1)]
    assert group.execute_rank_zero("echo", 1).result() == (0, 1)
    assert group.execute_rank_zero_async("echo", 1).result() == (0, 1)


def test_functions_are_sent_to_the_workers():
    group = DirectGroup(Actor, 2)
    result = group.execute_with_func_generator(lambda worker, data: worker.add_rank(data), batch(0, 0))
    assert result.batch["x"].tolist() == [0, 1]
    assert group.execute_func_rank_zero(lambda values: sum(values), [1, 2]) == 3
    assert group.get_master_addr_port() == ("127.0.0.1", 0)


def test_an_override_without_a_decorator_is_called():
    assert DirectGroup(Child, 2).plain() == "child"


def test_names_of_the_group_are_taken():
    class Rude(Worker):
        @register()
        def shutdown(self):
            pass

    with pytest.raises(ConfigError, match=r"Rude\.shutdown would be 'shutdown' on the worker group"):
        DirectGroup(Rude, 1)


def test_a_group_has_workers():
    with pytest.raises(ConfigError, match="'actor' needs at least one worker; world_size is 0"):
        DirectGroup(Actor, 0)
    group = DirectGroup(Actor, 2)
    assert group.world_size == 2
    assert group.worker_names == ["actor/0", "actor/1"]


def test_leaving_the_group_ends_it():
    with DirectGroup(Actor, 1) as group:
        assert group.shutdowns == 0
    assert group.shutdowns == 1


class Critic(Worker):
    def __init__(self, context, offset):
        super().__init__(context)
        self.offset = offset

    def dispatch_info(self, mesh_name):
        return DispatchInfo(0, 1, self.rank == 0)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"))
    def on_mesh(self, data):
        return DataProto.from_dict({"x": data.batch["x"] + self.offset})


def fused():
    return create_colocated_worker_cls({"actor": ClassWithInitArgs(Actor), "critic": ClassWithInitArgs(Critic, 100)})


def test_roles_of_fused_workers_have_prefixed_methods():
    group = DirectGroup(fused(), 4, "all")
    assert group.critic_on_mesh(batch(0, 1, 2)).batch["x"].tolist() == [100, 101, 102]
    assert group.actor_on_mesh(batch(0, 1, 2)).batch["rank"].tolist() == [1, 1, 3]


def test_a_view_of_a_role_has_plain_names_and_its_own_mesh():
    views = DirectGroup(fused(), 4, "all").spawn(["actor", "critic"])
    assert views["critic"].on_mesh(batch(0, 1, 2)).batch["x"].tolist() == [100, 101, 102]
    assert views["actor"].on_mesh(batch(0, 1, 2)).batch["rank"].tolist() == [1, 1, 3]
    assert views["actor"].echo([1, 2, 3, 4])[3] == (3, [1, 2, 3, 4])
    assert views["critic"].name == "all.critic"
    assert not hasattr(views["critic"], "echo")


def test_the_workers_end_with_the_last_view():
    group = DirectGroup(fused(), 2, "all")
    views = group.spawn({"actor", "critic"})
    views["actor"].shutdown()
    views["actor"].shutdown()
    assert group.shutdowns == 0
    with pytest.raises(WorkerError, match=r"'all\.actor' was shut down; who cannot be called"):
        views["actor"].who()
    assert views["critic"].on_mesh(batch(1)).batch["x"].tolist() == [101]
    views["critic"].shutdown()
    assert group.shutdowns == 1


def test_a_role_that_is_not_there():
    with pytest.raises(ConfigError, match="no role rm; its roles are actor, critic"):
        DirectGroup(fused(), 1, "all").spawn(["rm"])
    with pytest.raises(ConfigError, match="its workers are not fused"):
        DirectGroup(Actor, 1).spawn(["actor"])
