"""A run that runs out of memory in a process of its own says in which phase, who held what, and what helps."""

import pytest
import torch
from fakes_training import train
from rl_core.errors import RlError
from rl_core.trainer import placement
from rl_core.workers.critic import CriticWorker

pytestmark = pytest.mark.heavy


class HungryCritic(CriticWorker):
    """Its engine asks for more than there is, in the update."""

    def init_model(self):
        super().init_model()
        self.engine.optimizer_step = _no_memory


def _no_memory():
    msg = "CUDA out of memory. Tried to allocate 2.00 GiB."
    raise torch.OutOfMemoryError(msg)


@pytest.fixture(scope="module")
def ray_here(installed_fakes):
    import ray

    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.parametrize("runtime", ["local", "ray"])
def test_the_error_reaches_the_user(runtime, tmp_path, monkeypatch, ray_here):
    monkeypatch.setattr(placement, "CriticWorker", HungryCritic)
    with pytest.raises(RlError) as caught:
        train(tmp_path, "algorithm.adv_estimator=gae", f"trainer.runtime={runtime}")
    text = str(caught.value)
    assert "OutOfMemoryError: critic rank 0 of 1 on cpu ran out of memory in phase update_critic" in text
    assert "Tried to allocate 2.00 GiB" in text
    assert "critic parameters" in text
    assert "lower critic.ppo_max_token_len_per_gpu" in text
