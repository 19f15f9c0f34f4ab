import gc
import os
import threading

import numpy as np
import pytest
import ray
import torch
from rl_core.errors import ConfigError, PluginError
from rl_core.runtime.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, RunLink
from rl_core.runtime.ray.group import RayFuture
from rl_core.single_controller.base import Dispatch, Worker, register
from rl_core.single_controller.base.collective import ENVIRONMENT_VARIABLES
from rl_dataproto import DataProto

pytestmark = pytest.mark.heavy


class Actor(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def environment(self, names):
        return {name: os.environ.get(name) for name in names}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def described(self):
        return self.context.to_env()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def mappings(self, data):
        """File behind the first column, and behind the first array, with the place in it."""
        return [_behind(data.batch["x"].data_ptr()), _behind(data.non_tensor_batch["numbers"].ctypes.data)]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def is_writable(self, array):
        return array.flags.writeable

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def whole(self, data):
        return data

    @register(dispatch_mode=Dispatch.DP_COMPUTE_METRIC)
    def total(self, data):
        return data.batch["x"].sum().item()


def _behind(address):
    with open("/proc/self/maps") as lines:
        for line in lines:
            span, _mode, offset, _device, inode, *path = line.split()
            start, end = (int(part, 16) for part in span.split("-"))
            if start <= address < end:
                return (path or [""])[0], inode, address - start + int(offset, 16)
    return None


@pytest.fixture(scope="module")
def two(ray_groups):
    return ray_groups(Actor, 2, name="actor")


@pytest.fixture(scope="module")
def other(ray_groups):
    return ray_groups(Actor, 2, name="critic")


def large():
    return DataProto.from_dict(
        {"x": torch.ones(64, 4096)}, non_tensors={"numbers": np.arange(64.0 * 4096).reshape(64, -1)}
    )


@pytest.fixture
def fetched(monkeypatch):
    """References that this process asks the store for, and how many values it puts there."""
    seen, put, get = {"get": set(), "put": 0}, ray.put, ray.get

    def counting_get(refs, **options):
        seen["get"] |= set(refs if isinstance(refs, list) else [refs])
        return get(refs, **options)

    def counting_put(value, **options):
        seen["put"] += 1
        return put(value, **options)

    monkeypatch.setattr(ray, "get", counting_get)
    monkeypatch.setattr(ray, "put", counting_put)
    return seen


def test_a_worker_finds_its_place_in_the_variables_of_torchrun(two):
    found = two.environment(ENVIRONMENT_VARIABLES)
    assert found == two.described()
    for rank, variables in enumerate(found):
        assert variables["RANK"] == variables["LOCAL_RANK"] == str(rank)
        assert variables["WORLD_SIZE"] == variables["LOCAL_WORLD_SIZE"] == "2"
        assert variables["MASTER_ADDR"] == two.members[0].node_ip
    assert found[0]["MASTER_PORT"] == found[1]["MASTER_PORT"] != "0"


def test_the_choice_of_plugins_and_threads_is_the_drivers(two, cluster):
    expected = {"RL_PLUGINS": os.environ["RL_PLUGINS"], "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    assert two.environment(tuple(expected)) == [expected] * 2


def test_workers_read_one_copy_of_a_shared_batch_in_the_store(two, fetched):
    column, array = zip(*two.mappings(large()), strict=True)
    assert column[0] == column[1]
    assert array[0] == array[1]
    assert column[0][0].startswith("/dev/shm/")
    assert array[0][0].startswith("/dev/shm/")
    assert fetched["put"] == 1


def test_a_large_argument_of_any_kind_is_stored_once_and_read_only(two, fetched):
    assert two.is_writable(np.zeros(100_000)) == [False, False]
    assert fetched["put"] == 1


def test_a_future_is_passed_on_without_being_fetched(two, other, fetched):
    future = two.whole(large())
    refs = [part.ref for part in future.futures]
    assert all(isinstance(part, RayFuture) for part in future.futures)
    assert other.total(future) == [32 * 4096.0] * 2
    assert not fetched["get"] & set(refs)
    # Nobody here waits for it any more, which would be reported as a hanging call.
    del future, refs
    fetched["get"].clear()
    assert two._link.health.pending() == []


def private_bytes():
    """Memory that is this process's alone, without what it maps of the object store."""
    total, counts = 0, False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            name, *fields = line.split()
            if not name.endswith(":"):
                counts = not (fields[4:] and fields[4].startswith("/dev/shm/"))
            elif counts and name.startswith("Private_"):
                total += int(fields[0]) * 1024
    return total


def test_a_batch_that_goes_and_comes_back_costs_the_driver_one_copy(two):
    data = DataProto.from_dict({"x": torch.ones(16384, 2048, dtype=torch.int64)})
    size = data.batch["x"].nbytes
    assert size == 256 << 20
    two.whole(large()).get()
    gc.collect()
    before, peak, done = private_bytes(), 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, private_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = two.whole(data).get()
    done.set()
    watcher.join()
    assert len(result) == len(data)
    assert max(peak, private_bytes()) - before < 1.3 * size


def test_a_worker_with_other_plugins_is_refused_with_the_difference(ray_groups):
    with pytest.raises(PluginError) as error:
        ray_groups(Actor, 1, name="blocked", link=RunLink(environment={"RL_PLUGINS": "rl-core,rl-testing"}))
    assert "rank 0 of 1 of worker group 'blocked'" in str(error.value)
    assert "only on the worker: backend 'fake' (rl-testing" in str(error.value)


def test_a_pool_must_be_reserved_and_live_as_long_as_its_group(cluster):
    pool = RayResourcePool([1], use_gpu=False)
    with pytest.raises(ConfigError, match="pool 'pool' is not reserved"):
        RayWorkerGroup(pool, RayClassWithInitArgs(Actor))
    pool.reserve(cluster.nodes(), 10.0)
    try:
        with pytest.raises(ConfigError, match="'actor' is to outlive this process, but its pool 'pool' ends with it"):
            RayWorkerGroup(pool, RayClassWithInitArgs(Actor), name="actor", detached=True)
    finally:
        pool.release()
