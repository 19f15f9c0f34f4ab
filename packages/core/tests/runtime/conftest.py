import sys

import pytest
from rl_core.plugins import reset_registry


def send_whole(module):
    """Let functions and classes of a test module travel by value: workers cannot import it."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(module)


@pytest.fixture(scope="module")
def cluster(request):
    """A Ray cluster of this process for one test module, whose workers know core's own plugins."""
    from rl_core.config.ray import RayConfig, RayInitConfig
    from rl_core.runtime.ray.cluster import Cluster

    send_whole(sys.modules[request.module.__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RL_PLUGINS", "rl-core")
        reset_registry()
        cluster = Cluster(RayConfig(ray_init=RayInitConfig(num_cpus=16)), num_workers=4)
        yield cluster
        cluster.close()
    reset_registry()


@pytest.fixture(scope="module")
def ray_groups(cluster):
    """``ray_groups(worker_cls, world_size, *args, **kwargs)``: groups of Ray actors that end with the module."""
    from rl_core.runtime.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, RunLink

    started = []

    def build(worker_cls, world_size, *args, name="actor", deadline_s=60.0, link=None, **kwargs):
        link = link or RunLink(environment=cluster.worker_environment(on_cuda=False))
        pool = RayResourcePool([world_size], use_gpu=False, name_prefix=name)
        pool.reserve(cluster.nodes(), 30.0)
        make = RayClassWithInitArgs(worker_cls, *args, **kwargs)
        try:
            group = RayWorkerGroup(pool, make, name=name, deadline_s=deadline_s, link=link)
        except BaseException:
            pool.release()
            raise
        started.append((group, pool))
        return group

    yield build
    for group, pool in started:
        group.shutdown()
        pool.release()
