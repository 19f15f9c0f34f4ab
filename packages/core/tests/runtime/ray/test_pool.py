import os
import subprocess
import sys
import time

import pytest
import ray
from rl_core.errors import ConfigError, DeadlineError
from rl_core.runtime.ray.cluster import Node
from rl_core.runtime.ray.pool import (
    RayResourcePool,
    choose_homes,
    merge_resource_pool,
    resource_table,
    split_resource_pool,
)


def machines(*cpus, gpus=None, free=None):
    """Nodes a, b, c ... with so many CPUs (and GPUs)."""
    found = []
    for number, count in enumerate(cpus):
        total = {"CPU": float(count)} | ({} if gpus is None else {"GPU": float(gpus[number])})
        left = total if free is None else {"CPU": float(free[number])}
        found.append(Node("abcdefgh"[number], f"10.0.0.{number + 1}", total, left))
    return found


def homes(wanted, nodes, *, use_gpu=False):
    return {name: "".join(chosen) for name, chosen in choose_homes(wanted, nodes, use_gpu=use_gpu).items()}


def test_the_nodes_of_a_pool_are_different_machines():
    assert homes({"p": [1, 1]}, machines(2, 2)) == {"p": "ab"}
    assert homes({"p": [2, 2, 2]}, machines(2, 8, 2)) == {"p": "acb"}


def test_pools_share_machines():
    assert homes({"p": [2], "q": [2]}, machines(4)) == {"p": "a", "q": "a"}
    # The small pool must leave the large machine to the large one.
    assert homes({"small": [2], "large": [4]}, machines(4, 2)) == {"small": "b", "large": "a"}
    # One that needs two machines comes before one of the same size that needs any.
    assert homes({"any": [2], "two": [2, 2]}, machines(4, 2)) == {"any": "a", "two": "ba"}


def test_free_machines_come_first():
    assert homes({"p": [2]}, machines(2, 2, free=(0, 2))) == {"p": "b"}
    assert homes({"p": [2, 2]}, machines(2, 2, free=(0, 2))) == {"p": "ab"}


@pytest.mark.parametrize(
    ("wanted", "nodes", "use_gpu"),
    [
        ({"p": [4]}, machines(2), True),
        ({"p": [1, 1]}, machines(2), False),
        ({"p": [3]}, machines(2), False),
        ({"p": [2], "q": [1]}, machines(2), False),
        ({"p": [2]}, machines(1, 1), False),
        ({"p": [4]}, machines(2, gpus=[4]), True),
        ({"p": [1]}, [], False),
    ],
)
def test_what_can_never_be_placed_is_refused(wanted, nodes, use_gpu):
    with pytest.raises(ConfigError, match="the cluster is too small for this run"):
        homes(wanted, nodes, use_gpu=use_gpu)


def test_the_table_shows_what_was_asked_and_what_is_there():
    with pytest.raises(ConfigError) as error:
        homes({"global_pool": [2, 2], "critic_pool": [1]}, machines(4, gpus=[8]), use_gpu=True)
    assert str(error.value).splitlines() == [
        "the cluster is too small for this run.",
        "  asked (GPU and CPU for each process; processes on each node)",
        "    global_pool             2 + 2",
        "    critic_pool             1",
        "  the cluster has",
        "    node 10.0.0.1           GPU 8 in all, 8 free; CPU 4 in all, 4 free",
        "  It has 1 of the 2 nodes asked for.",
        "  Lower n_gpus_per_node or nnodes of `trainer`, or of the role that has the pool; or add nodes (for a cluster "
        "that is started here: raise ray_kwargs.ray_init.num_cpus).",
    ]
    assert resource_table({"p": [1]}, [], use_gpu=False).endswith("the cluster has\n    no node")


def test_pools_that_are_not_reserved_are_neither_split_nor_merged():
    with pytest.raises(ConfigError, match=r"no reserved places; call reserve\(\) first; it cannot be split into 2"):
        split_resource_pool(RayResourcePool([4], use_gpu=False), 2)
    with pytest.raises(ConfigError, match="both must be reserved and agree"):
        merge_resource_pool(RayResourcePool([1], use_gpu=False), RayResourcePool([1], use_gpu=False))


def waiting_groups():
    """Placement groups that the cluster keeps or still tries to place."""
    table = ray.util.placement_group_table().values()
    return [entry["name"] for entry in table if entry["state"] != "REMOVED"]


def nothing_is_left():
    end = time.monotonic() + 10.0
    while waiting_groups() and time.monotonic() < end:
        time.sleep(0.05)
    return not waiting_groups()


@pytest.mark.heavy
@pytest.mark.parametrize(("counts", "use_gpu"), [([4], True), ([1, 1], False), ([17], False)])
def test_b76_an_impossible_pool_is_refused_at_once_and_leaves_nothing_behind(cluster, counts, use_gpu):
    started = time.monotonic()
    with pytest.raises(ConfigError, match="the cluster is too small for this run"):
        RayResourcePool(counts, use_gpu, n_gpus_per_node=20).reserve(cluster.nodes(), 60.0)
    assert time.monotonic() - started < 5.0
    assert waiting_groups() == []


@pytest.mark.heavy
def test_places_that_others_hold_are_waited_for_until_the_deadline(cluster):
    holder = RayResourcePool([15], use_gpu=False, name_prefix="holder", n_gpus_per_node=16)
    holder.reserve(cluster.nodes(), 30.0)
    second = RayResourcePool([2], use_gpu=False, name_prefix="second")
    try:
        with pytest.raises(DeadlineError) as error:
            second.reserve(cluster.nodes(), 1.0)
    finally:
        holder.release()
    assert "pool 'second' was not placed within 1 s" in str(error.value)
    assert "CPU 16 in all, 1 free" in str(error.value)
    assert nothing_is_left()
    second.reserve(cluster.nodes(), 30.0)
    second.release()
    assert nothing_is_left()


@pytest.mark.heavy
def test_a_pool_is_cut_and_joined_without_taking_further_places(cluster):
    whole = RayResourcePool([4], use_gpu=False)
    whole.reserve(cluster.nodes(), 30.0)
    try:
        one, three = split_resource_pool(whole, [1, 3])
        assert (one.world_size, three.world_size, three.local_rank_list) == (1, 3, [0, 1, 2])
        halves = split_resource_pool(whole, 2)
        assert [half.slots for half in halves] == [whole.slots[:2], whole.slots[2:]]
        joined = merge_resource_pool(three, one)
        assert joined.slots == [*whole.slots[1:], whole.slots[0]]
        part = one.options(0)
        assert (part["num_cpus"], part["num_gpus"]) == (0.1, 0)
        assert part["scheduling_strategy"].placement_group_bundle_index == 0
        for sizes in (3, [1, 1], [4, 0], 0):
            with pytest.raises(ConfigError, match="has 4 reserved places; it cannot be split into"):
                split_resource_pool(whole, sizes)
        with pytest.raises(ConfigError, match="cannot be merged"):
            other = RayResourcePool([1], use_gpu=False, max_colocate_count=1)
            other._slots = one.slots
            merge_resource_pool(one, other)
        assert len(waiting_groups()) == 1
    finally:
        whole.release()
    assert nothing_is_left()


FIRST = """
import sys
from rl_core.config.ray import RayConfig, RayInitConfig
from rl_core.runtime.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from rl_core.runtime.ray.cluster import Cluster
from rl_core.single_controller.base import Worker

cluster = Cluster(RayConfig(ray_init=RayInitConfig(address=sys.argv[1], namespace="shared")), num_workers=2)
pool = RayResourcePool([2], use_gpu=False, name_prefix="lasting", detached=True)
pool.reserve(cluster.nodes(), 30.0)
group = RayWorkerGroup(pool, RayClassWithInitArgs(Worker), name="lasting", detached=True)
print([member.pid for member in group.members])
cluster.close()
"""
SECOND = """
import sys
from rl_core.config.ray import RayConfig, RayInitConfig
from rl_core.errors import ConfigError, WorkerError
from rl_core.runtime.ray import RayResourcePool, RayWorkerGroup
from rl_core.runtime.ray.cluster import Cluster
from rl_core.single_controller.base import Worker

cluster = Cluster(RayConfig(ray_init=RayInitConfig(address=sys.argv[1], namespace="shared")), num_workers=2)
for wrong in (1, 3):
    try:
        RayWorkerGroup.from_detached("lasting", Worker, wrong)
    except WorkerError as error:
        print(error)
again = RayResourcePool([2], use_gpu=False, name_prefix="lasting", detached=True)
try:
    again.reserve(cluster.nodes(), 30.0)
except ConfigError as error:
    print(error)
group = RayWorkerGroup.from_detached("lasting", Worker, 2)
print([member.pid for member in group.members], group.get_master_addr_port()[1] > 0)
group.shutdown()
RayResourcePool.from_detached("lasting", use_gpu=False).release()
cluster.close()
"""


@pytest.mark.heavy
def test_a_detached_group_outlives_its_driver_and_is_found_by_name(cluster):
    address = ray.get_runtime_context().gcs_address

    def driver(text):
        command = [sys.executable, "-c", text, address]
        done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    (pids,) = driver(FIRST)
    assert all(os.path.exists(f"/proc/{pid}") for pid in pids.strip("[]").split(", "))
    too_few, too_many, taken, found = driver(SECOND)
    assert too_few == "detached worker group 'lasting' was asked for with 1 workers; it has 2"
    assert too_many.startswith(
        "there is no detached worker group 'lasting' with 3 workers in the Ray namespace 'shared'"
    )
    assert taken.startswith("a detached pool 'lasting' exists")
    assert found == f"{pids} True"
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids.strip("[]").split(", "))
    assert nothing_is_left()
