"""The fakes on two emulated nodes, in a process without another Ray cluster."""

import re
import threading
import time

import pytest
from fakes_training import train
from rl_core.errors import WorkerError
from same_run import assert_same_run

pytestmark = pytest.mark.heavy

PPO = ["algorithm.adv_estimator=gae", "algorithm.use_kl_in_reward=true"]


@pytest.fixture
def two_nodes(installed_fakes):
    """Two emulated nodes with two CPUs each; the second can be killed."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    second = cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False)
    yield lambda: cluster.remove_node(second, allow_graceful=False)
    ray.shutdown()
    cluster.shutdown()


def test_two_nodes_train_alike_and_the_loss_of_one_ends_the_run(two_nodes, tmp_path):
    spread = ["trainer.runtime=ray", "trainer.nnodes=2", "trainer.n_gpus_per_node=2"]
    assert_same_run(train(tmp_path / "both", *PPO, *spread), train(tmp_path / "one", *PPO))

    def kill_when_trained():
        metrics = tmp_path / "lost" / "run" / "metrics.jsonl"
        while not (metrics.is_file() and len(metrics.read_text().splitlines()) > 1):
            time.sleep(0.05)
        killed.append(time.monotonic())
        two_nodes()

    killed = []
    killer = threading.Thread(target=kill_when_trained)
    killer.start()
    with pytest.raises(WorkerError) as error:
        train(tmp_path / "lost", *PPO, *spread, "trainer.total_training_steps=2000", "trainer.total_epochs=2000")
    ended = time.monotonic()
    killer.join()
    assert ended - killed[0] < 40.0
    assert re.search(r"on rank \d of 4 of worker group .* \(node [\d.]+, pid \d+\)", str(error.value))
