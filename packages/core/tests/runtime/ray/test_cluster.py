import os
import socket
import sys
import time

import pytest
from rl_core.config.ray import RayConfig, RayInitConfig
from rl_core.errors import ConfigError
from rl_core.runtime.ray.cluster import FORWARDED, Cluster


def config(**options):
    return RayConfig(ray_init=RayInitConfig(**options))


@pytest.fixture
def joined(monkeypatch):
    """A connection that finds Ray running already, so that it starts nothing."""
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    for name in FORWARDED:
        monkeypatch.delenv(name, raising=False)
    return lambda **options: Cluster(config(**options), num_workers=1)


def test_the_drivers_choices_are_forwarded_and_nothing_else(joined, monkeypatch):
    monkeypatch.setenv("RL_BLOCK_PLUGINS", "some-plugin")
    monkeypatch.setenv("SOME_TOKEN", "secret")
    assert joined().worker_environment(on_cuda=True) == {"RL_BLOCK_PLUGINS": "some-plugin"}


def test_workers_that_share_cores_take_one_thread_each_unless_told_otherwise(joined, monkeypatch):
    assert joined().worker_environment(on_cuda=False) == {"OMP_NUM_THREADS": "1"}
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert joined().worker_environment(on_cuda=False) == {"OMP_NUM_THREADS": "3"}


def test_what_the_runtime_environment_sets_wins(joined, monkeypatch):
    monkeypatch.setenv("RL_PLUGINS", "rl-core")
    own = joined(runtime_env={"env_vars": {"RL_PLUGINS": "other", "OMP_NUM_THREADS": "2"}})
    assert own.worker_environment(on_cuda=False) == {}


def test_workers_stand_where_the_driver_does_unless_ray_unpacks_a_folder(joined):
    assert joined().worker_directory() == os.getcwd()
    assert joined(runtime_env={"working_dir": "project"}).worker_directory() is None
    assert joined().worker_import_path() == tuple(sys.path)
    assert joined(runtime_env={"working_dir": "project"}).worker_import_path() == ()


@pytest.mark.heavy
def test_the_nodes_of_a_cluster_that_was_joined(cluster):
    again = Cluster(config(), num_workers=1)
    assert again.joined_before
    (node,) = again.nodes()
    assert node.total["CPU"] == node.free["CPU"] == 16
    again.close()
    assert len(cluster.nodes()) == 1


def test_a_cluster_that_does_not_answer_is_named_at_once(monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(ConfigError, match=r"no Ray cluster answers at '127\.0\.0\.1:1' .*ray start --head"):
        Cluster(config(address="127.0.0.1:1"), num_workers=1)


@pytest.mark.heavy
def test_something_that_listens_and_is_no_cluster_is_refused_in_time(monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("rl_core.runtime.ray.cluster._CONNECT_S", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(ConfigError, match="did not say within 3 s that it is a healthy Ray cluster"):
            Cluster(config(address=address), num_workers=1)
        assert time.monotonic() - started < 20.0
