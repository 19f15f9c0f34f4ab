import asyncio
import gc
import logging
import threading
import time
import weakref

import pytest
import torch
from rl_core.errors import ConfigError, DeadlineError, WorkerError
from rl_core.runtime import local
from rl_core.runtime.local import LocalWorkerGroup
from rl_core.single_controller.base import (
    ClassWithInitArgs,
    Dispatch,
    DispatchInfo,
    Execute,
    Worker,
    create_colocated_worker_cls,
    make_nd_compute_dataproto_dispatch_fn,
    progress,
    register,
)
from rl_dataproto import DataProto

SIZES = [1, 2, 3, 4]


class Actor(Worker):
    def __init__(self, context, scale=1.0, *, broken_rank=None):
        super().__init__(context)
        if context.rank == broken_rank:
            raise OSError("no such model")
        self.scale = scale
        self.closed = self.notes = 0
        self.thread = threading.current_thread()
        self.hold = threading.Event()

    def dispatch_info(self, mesh_name):
        return DispatchInfo(self.rank, self.world_size, True)

    def close(self):
        self.closed += 1

    def note(self):
        self.notes += 1

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"))
    def scaled(self, data: DataProto) -> DataProto:
        """Multiply every row."""
        return DataProto.from_dict({"x": data.batch["x"] * self.scale})

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"))
    async def scaled_async(self, data):
        await asyncio.sleep(0.001)
        return self.scaled(data)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("train"), blocking=False)
    def scaled_later(self, data):
        return self.scaled(data)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def held(self):
        self.hold.wait(10.0)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def place(self):
        own = self.context
        return own.rank, own.world_size, own.local_rank, own.local_world_size, own.device

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def gathered(self, value):
        return self.collective.all_gather_object((self.rank, value))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fails_while_peers_wait(self, rank):
        if self.rank == rank:
            time.sleep(0.02)
            raise ValueError("the loss is not finite")
        self.collective.barrier()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def fails_async(self):
        await asyncio.sleep(0)
        raise ValueError("async")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def fails_later(self):
        raise ValueError("later")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def slow(self, rank):
        if self.rank == rank:
            self.hold.wait(10.0)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def skips_the_barrier(self, rank):
        if self.rank != rank:
            self.collective.barrier()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def writes_meta(self, data):
        data.meta_info[f"rank{self.rank}"] = True
        data.batch["x"] = data.batch["x"] + self.rank
        self.collective.barrier()
        return sorted(data.meta_info), data.batch["x"].tolist()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def gradient(self, power):
        weight = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
        (weight**power).sum().backward()
        return weight.grad.item()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def thread_now(self):
        return threading.current_thread()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def use(self, group):
        return group.place()


def threads_end(name):
    """Whether the threads of group ``name`` are gone, at once or a little later."""
    end = time.monotonic() + 2.0
    while any(thread.name.startswith(f"{name}/") for thread in threading.enumerate()):
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def batch(*rows):
    return DataProto.from_dict({"x": torch.tensor(rows, dtype=torch.float64)})


def rows(data):
    return data.batch["x"].tolist()


@pytest.fixture
def make():
    groups = []

    def build(*args, **kwargs):
        groups.append(LocalWorkerGroup(*args, **kwargs))
        return groups[-1]

    yield build
    for group in groups:
        for worker in group.workers:
            getattr(worker, "hold", threading.Event()).set()
        group.shutdown()


@pytest.mark.parametrize("world_size", SIZES)
@pytest.mark.parametrize("num_rows", [0, 1, 5, 8])
@pytest.mark.parametrize("method", ["scaled", "scaled_async"])
def test_the_result_does_not_depend_on_the_number_of_workers(make, world_size, num_rows, method):
    group = make(Actor, world_size, 3.0)
    data = batch(*range(8)).slice(0, num_rows)
    assert rows(getattr(group, method)(data)) == [3.0 * row for row in range(num_rows)]


@pytest.mark.parametrize("world_size", SIZES)
def test_every_worker_knows_its_place(make, world_size):
    group = make(Actor, world_size)
    assert group.place() == [(rank, world_size, rank, world_size, "cpu") for rank in range(world_size)]
    assert [worker.rank for worker in group.workers] == list(range(world_size))
    assert group.name == "actor_rollout"


def test_devices_are_given_for_each_or_for_all(make):
    assert [place[-1] for place in make(Actor, 2, devices=["cuda:0", "cuda:1"]).place()] == ["cuda:0", "cuda:1"]
    assert [place[-1] for place in make(Actor, 2, devices="meta").place()] == ["meta", "meta"]
    with pytest.raises(ConfigError, match="'critic' has 2 workers, but 3 devices"):
        make(Actor, 2, devices=["cpu"] * 3, name="critic")


def test_arguments_reach_every_constructor(make):
    assert [worker.scale for worker in make(Actor, 2, scale=7.0).workers] == [7.0, 7.0]


def test_one_worker_runs_in_the_callers_thread(make):
    group = make(Actor, 1)
    assert group.workers[0].thread is threading.current_thread()
    assert group.thread_now() == [threading.current_thread()]


def test_several_workers_keep_a_thread_each(make):
    group = make(Actor, 3)
    threads = group.thread_now()
    assert threads == [worker.thread for worker in group.workers]
    assert len({*threads, threading.current_thread()}) == 4
    assert [thread.name for thread in threads] == group.worker_names


@pytest.mark.parametrize("world_size", SIZES)
def test_workers_meet(make, world_size):
    group = make(Actor, world_size)
    assert group.gathered("x") == [[(rank, "x") for rank in range(world_size)]] * world_size


def test_constructors_may_meet_too(make):
    class Meets(Worker):
        def __init__(self, context):
            super().__init__(context)
            self.ranks = context.collective.all_gather_object(context.rank)

    assert [worker.ranks for worker in make(Meets, 3).workers] == [[0, 1, 2]] * 3


@pytest.mark.parametrize("world_size", [1, 2])
def test_gradients_work_even_under_no_grad(make, world_size):
    group = make(Actor, world_size)
    with torch.no_grad():
        assert group.gradient(3) == [12.0] * world_size


def test_groups_live_side_by_side(make):
    first, second = make(Actor, 2, 2.0, name="actor"), make(Actor, 3, 5.0, name="critic")
    assert rows(first.scaled(second.scaled(batch(1, 2, 3)))) == [10.0, 20.0, 30.0]
    assert first.gathered(1)[0] == [(0, 1), (1, 1)]


@pytest.mark.parametrize(("producers", "consumers"), [(1, 1), (1, 3), (3, 1), (2, 4)])
def test_a_result_goes_from_group_to_group_without_the_controller(make, producers, consumers):
    first, second = make(Actor, producers, 2.0, name="actor"), make(Actor, consumers, 5.0, name="critic")
    assert rows(second.scaled(first.scaled_later(batch(*range(5))))) == [10.0 * row for row in range(5)]


def test_a_result_goes_back_into_its_own_group(make):
    group = make(Actor, 2, 2.0)
    assert rows(group.scaled(group.scaled_later(batch(1, 2, 3)))) == [4.0, 8.0, 12.0]


def test_a_failure_travels_along_the_chain(make):
    first, second = make(Actor, 2, name="actor"), make(Actor, 2, name="critic")
    future = first.fails_later()
    with pytest.raises(
        WorkerError, match=r"'critic' .*failed: .*fails_later of worker group 'actor' .*ValueError: later"
    ):
        second.gathered(future[0])


def test_without_blocking_the_caller_does_not_wait(make):
    group = make(Actor, 2, 2.0)
    group.dispatch_info("train")
    held = group.held()
    futures = [group.scaled_later(batch(1, 2)) for _ in range(5)]
    assert not any(part.done() for future in futures for part in future.futures)
    for worker in group.workers:
        worker.hold.set()
    assert [rows(future.get()) for future in futures] == [[2.0, 4.0]] * 5
    assert [future.result() for future in held] == [None, None]


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("failing", [0, 1])
def test_a_worker_that_fails_releases_its_peers_at_once(make, world_size, failing):
    group = make(Actor, world_size, name="actor")
    started = time.monotonic()
    with pytest.raises(WorkerError) as error, progress(step=3, phase="update_actor"):
        group.fails_while_peers_wait(failing)
    assert time.monotonic() - started < 5.0  # the worker itself would take 10 s or its default deadline
    assert str(error.value) == (
        f"fails_while_peers_wait of worker group 'actor' on rank {failing} of {world_size} "
        "(step 3, phase update_actor) failed: ValueError: the loss is not finite"
    )
    assert isinstance(error.value.__cause__, ValueError)


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("method", ["fails_async", "fails_later"])
def test_a_broken_group_refuses_with_its_first_failure(make, world_size, method):
    group = make(Actor, world_size)
    with pytest.raises(WorkerError, match="failed: ValueError"):
        for future in getattr(group, method)():
            future.result()
    with pytest.raises(WorkerError, match=rf"cannot run place: it is broken .* First failure: {method} of") as error:
        group.place()
    assert isinstance(error.value.__cause__, WorkerError)
    assert isinstance(error.value.__cause__.__cause__, ValueError)


def test_calls_behind_a_failure_do_not_run_and_it_is_not_lost(make):
    group = make(Actor, 2)
    group.held()
    group.fails_later()
    behind = group.execute_all("note")
    for worker in group.workers:
        worker.hold.set()
    with pytest.raises(WorkerError, match=r"fails_later of worker group .* failed: ValueError: later"):
        group.place()
    for future in behind:
        with pytest.raises(WorkerError, match="note was not begun, because a peer failed: fails_later"):
            future.result()
    assert [worker.notes for worker in group.workers] == [0, 0]


def test_a_mistake_of_the_caller_breaks_nothing(make):
    group = make(Actor, 2, 2.0)
    with pytest.raises(TypeError, match="wants a DataProto"):
        group.scaled([1, 2])
    assert rows(group.scaled(batch(1, 2))) == [2.0, 4.0]


def test_a_method_that_does_not_exist(make):
    with pytest.raises(WorkerError, match="AttributeError: 'Actor' object has no attribute 'sclaed'"):
        make(Actor, 2).execute_all_sync("sclaed")


def test_a_deadline_names_who_is_late(make):
    group = make(Actor, 3, deadline_s=0.1, name="actor")
    started = time.monotonic()
    with pytest.raises(
        DeadlineError, match=r"^slow of worker group 'actor' on rank 2 of 3 did not finish within 0\.1 s$"
    ):
        group.slow(2)
    assert time.monotonic() - started < 5.0  # the worker itself would take 10 s or its default deadline
    with pytest.raises(WorkerError, match=r"broken .* slow of worker group 'actor' on rank 2"):
        group.place()


def test_a_collective_that_one_worker_skips_ends_at_the_deadline(make):
    group = make(Actor, 2, deadline_s=0.1)
    with pytest.raises(DeadlineError, match=r"on rank 1 of 2 .* 0\.1 s: it waits in barrier for ranks \[0\]$"):
        group.skips_the_barrier(0)


def test_the_deadline_of_one_inline_coroutine(make):
    class Sleeper(Worker):
        @register(dispatch_mode=Dispatch.RANK_ZERO)
        async def sleep(self):
            await asyncio.sleep(30.0)

    with pytest.raises(DeadlineError, match=r"sleep of worker group 'a' on rank 0 of 1 did not finish within 0\.05 s"):
        make(Sleeper, 1, deadline_s=0.05, name="a").sleep()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_constructor_that_fails(world_size):
    with pytest.raises(
        WorkerError, match=rf"__init__ of worker group 'unborn' on rank 0 of {world_size} failed: OSError: no such"
    ):
        LocalWorkerGroup(Actor, world_size, broken_rank=0, name="unborn")
    assert threads_end("unborn")


def test_workers_do_not_see_what_their_peers_add_to_a_batch(make):
    data = batch(1.0)
    result = make(Actor, 2).writes_meta(data)
    assert result == [(["rank0"], [1.0]), (["rank1"], [2.0])]
    assert data.meta_info == {}
    assert rows(data) == [1.0]


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_worker_that_calls_its_own_group_is_told(make, world_size):
    group = make(Actor, world_size, deadline_s=5.0)
    with pytest.raises(WorkerError, match=r"a worker of 'actor_rollout' called its own group \(place\)"):
        group.use(group)


def test_a_worker_may_call_another_group(make):
    other = make(Actor, 2, name="critic")
    assert len(make(Actor, 2).use(other)) == 2


def test_threads_that_share_one_inline_worker_take_turns(make):
    running, overlaps = [], []

    class Busy(Worker):
        @register(dispatch_mode=Dispatch.RANK_ZERO)
        def work(self):
            overlaps.append(len(running))
            running.append(1)
            time.sleep(0.01)
            running.pop()

    group = make(Busy, 1)
    threads = [threading.Thread(target=group.work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert overlaps == [0, 0, 0, 0]


def test_the_address_of_rank_zero_is_usable(make):
    address, port = make(Actor, 2).get_master_addr_port()
    assert address == "127.0.0.1"
    assert 1024 <= port < 65536


@pytest.mark.parametrize("world_size", [1, 2])
def test_shutdown_closes_every_worker_once(world_size):
    group = LocalWorkerGroup(Actor, world_size, name="ending")
    workers = group.workers
    group.shutdown()
    group.shutdown()
    assert [worker.closed for worker in workers] == [1] * world_size
    assert threads_end("ending")
    with pytest.raises(WorkerError, match="was shut down; place cannot be called"):
        group.place()


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_broken_group_is_closed_too(world_size):
    group = LocalWorkerGroup(Actor, world_size)
    with pytest.raises(WorkerError):
        group.fails_async()
    group.shutdown()
    assert [worker.closed for worker in group.workers] == [1] * world_size


def test_a_worker_that_does_not_close_is_reported():
    class Stubborn(Worker):
        def close(self):
            if self.rank == 1:
                raise OSError("busy")

    group = LocalWorkerGroup(Stubborn, 2, name="a")
    with pytest.raises(
        WorkerError, match=r"'a' did not close cleanly: close of worker group 'a' on rank 1 of 2 failed: OSError: busy"
    ):
        group.shutdown()


def test_a_worker_that_hangs_does_not_hold_up_the_end(monkeypatch, caplog):
    monkeypatch.setattr(local, "CLOSE_DEADLINE_S", 0.1)
    group = LocalWorkerGroup(Actor, 2, deadline_s=0.05, name="a")
    with pytest.raises(DeadlineError):
        group.slow(1)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING):
        group.shutdown()
    assert time.monotonic() - started < 5.0  # the worker itself would take 10 s or its default deadline
    assert (
        "after its failure, worker group 'a' did not close cleanly: close of worker group 'a' on rank 1" in caplog.text
    )
    assert group.workers[0].closed == 1
    group.workers[1].hold.set()


def test_a_group_that_is_dropped_leaves_no_thread():
    group = LocalWorkerGroup(Actor, 3, name="dropped")
    watch = weakref.ref(group)
    group.place()
    del group
    gc.collect()
    assert watch() is None
    assert threads_end("dropped")


def test_fused_roles_share_workers_and_have_groups_of_their_own(make):
    fused = create_colocated_worker_cls(
        {"actor": ClassWithInitArgs(Actor, 2.0), "critic": ClassWithInitArgs(Actor, scale=5.0)}
    )
    group = make(fused, 2, name="all")
    views = group.spawn({"actor", "critic"})
    assert rows(views["actor"].scaled(batch(1, 2, 3))) == [2.0, 4.0, 6.0]
    assert rows(views["critic"].scaled_async(batch(1, 2, 3))) == [5.0, 10.0, 15.0]
    assert rows(group.critic_scaled(batch(1))) == [5.0]
    assert views["actor"].thread_now() == views["critic"].thread_now()
    with pytest.raises(WorkerError, match=r"^critic\.fails_async of worker group 'all' on rank \d of 2 failed"):
        views["critic"].fails_async()
    with pytest.raises(WorkerError, match=r"cannot run actor\.place: it is broken"):
        views["actor"].place()
