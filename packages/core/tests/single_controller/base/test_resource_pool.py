import pytest
from rl_core.errors import ConfigError
from rl_core.single_controller.base.resource_pool import ResourcePool, ResourcePoolManager
from rl_core.workers.roles import Role

SPEC = {"global": [4, 4], "reward": [2]}
MAPPING = {Role.ActorRolloutRef: "global", Role.Critic: "global", Role.RewardModel: "reward"}


def test_ranks_are_counted_node_by_node():
    pool = ResourcePool([2, 3])
    assert pool.store == [2, 3]
    assert pool.world_size == 5
    assert pool.local_world_size_list == [2, 2, 3, 3, 3]
    assert pool.local_rank_list == [0, 1, 0, 1, 2]


def test_nodes_can_be_added():
    pool = ResourcePool()
    assert pool.world_size == 0
    pool.add_node(2)
    pool.add_node(1)
    assert pool.local_rank_list == [0, 1, 0]


def test_what_store_returns_is_the_callers():
    pool = ResourcePool([2])
    pool.store.append(7)
    assert pool.world_size == 2


@pytest.mark.parametrize("processes", [0, -1, 9])
def test_a_node_takes_as_many_processes_as_it_has_devices(processes):
    with pytest.raises(ConfigError, match=rf"1 to 8 processes \(n_gpus_per_node\); asked for {processes}"):
        ResourcePool([processes])


def test_counts_below_one_are_refused():
    with pytest.raises(ConfigError, match="max_colocate_count must be at least 1; it is 0"):
        ResourcePool([1], max_colocate_count=0)


def test_roles_on_one_name_share_one_pool():
    manager = ResourcePoolManager(SPEC, MAPPING)
    manager.create_resource_pool()
    assert manager.get_resource_pool(Role.Critic) is manager.get_resource_pool(Role.ActorRolloutRef)
    assert manager.get_resource_pool(Role.Critic).world_size == 8
    assert manager.get_resource_pool(Role.RewardModel).store == [2]
    assert manager.get_resource_pool(Role.RewardModel).max_colocate_count == 3
    assert manager.get_n_gpus() == 10


def test_mistakes_in_the_specification():
    with pytest.raises(ConfigError, match=r"role critic is on resource pool 'golbal'.*'global', 'reward'"):
        ResourcePoolManager(SPEC, {Role.Critic: "golbal"})
    with pytest.raises(ConfigError, match=r"'empty' needs at least one process .* it says \[\]"):
        ResourcePoolManager({"empty": []}, {})
    with pytest.raises(ConfigError, match=r"'none' .* it says \[4, 0\]"):
        ResourcePoolManager({"none": [4, 0]}, {})


def test_asking_for_a_pool_that_is_not_there():
    manager = ResourcePoolManager(SPEC, MAPPING)
    with pytest.raises(ConfigError, match="create_resource_pool"):
        manager.get_resource_pool(Role.Critic)
    manager.create_resource_pool()
    with pytest.raises(ConfigError, match="role env is on no resource pool"):
        manager.get_resource_pool(Role.Env)


@pytest.mark.parametrize(
    "available",
    [{"a": 4, "b": 4, "c": 2}, {"a": 8, "b": 2}, {"a": 16}],
)
def test_what_fits_is_accepted(available):
    ResourcePoolManager(SPEC, MAPPING).check_available(available)


@pytest.mark.parametrize(
    ("available", "reason"),
    [
        ({"a": 4, "b": 4}, "are not there"),
        ({}, "are not there"),
        ({"a": 4, "b": 3, "c": 3}, "do not fit on the nodes"),
        ({"a": 7, "b": 3}, "do not fit on the nodes"),
    ],
)
def test_what_cannot_fit_is_refused_with_both_sides(available, reason):
    with pytest.raises(ConfigError, match=f"10 devices were asked for and {reason}") as error:
        ResourcePoolManager(SPEC, MAPPING).check_available(available)
    assert "global: 4 + 4; reward: 2" in str(error.value)
    assert ("; ".join(f"{node}: {devices}" for node, devices in available.items()) or "no node") in str(error.value)
