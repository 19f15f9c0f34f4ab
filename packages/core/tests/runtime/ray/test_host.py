import ast
import asyncio
import os
import subprocess
import sys

import pytest
from rl_core.errors import DeadlineError
from rl_core.runtime.ray.host import RemoteFailure, WorkerHost, _within

# Ray believes in devices that are not there, which is enough to see who is given which.
DEVICES = """
import sys
from rl_core.config.ray import RayConfig, RayInitConfig
from rl_core.runtime.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, RunLink
from rl_core.runtime.ray.cluster import Cluster
from rl_core.single_controller.base import Dispatch, Worker, register

class Device(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def seen(self):
        import os
        return self.device, os.environ.get("CUDA_VISIBLE_DEVICES")

count, shared = int(sys.argv[1]), int(sys.argv[2])
cluster = Cluster(RayConfig(ray_init=RayInitConfig(num_cpus=4, num_gpus=count)), num_workers=2)
pool = RayResourcePool([2], use_gpu=True, max_colocate_count=shared)
pool.reserve(cluster.nodes(), 30.0)
make, link = RayClassWithInitArgs(Device), RunLink(on_cuda=True)
groups = [RayWorkerGroup(pool, make, name=f"group{number}", link=link) for number in range(shared)]
for group in groups:
    print(group.seen())
    group.shutdown()
pool.release()
cluster.close()
"""


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("visible", "count", "shared", "expected"),
    [
        # No variable: the process sees all four, and each worker has another one.
        (None, 4, 1, {("cuda:0", None), ("cuda:1", None), ("cuda:2", None), ("cuda:3", None)}),
        # Physical devices 3 and 1 are the process's devices 0 and 1.
        ("3,1", 2, 2, {("cuda:0", "3,1"), ("cuda:1", "3,1")}),
    ],
)
def test_b82_a_worker_sees_all_devices_and_takes_the_one_that_it_was_given(visible, count, shared, expected):
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environment |= {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    command = [sys.executable, "-c", DEVICES, str(count), str(shared)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    groups = [ast.literal_eval(line) for line in done.stdout.splitlines()]
    assert len(groups) == shared
    for group in groups:
        assert len(set(group)) == 2
        assert set(group) <= expected


@pytest.fixture
def here(monkeypatch):
    """This process is not to lead a session of its own for the sake of a test."""
    monkeypatch.setattr("rl_core.runtime.ray.host.lead", lambda: 0.0)


def test_an_environment_and_a_directory_are_taken_over(tmp_path, monkeypatch, here):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RL_TEST_HOST", "before")
    (tmp_path / "there").mkdir()
    WorkerHost("actor", {"RL_TEST_HOST": "after"}, str(tmp_path / "there"))
    assert os.environ["RL_TEST_HOST"] == "after"
    assert os.getcwd() == str(tmp_path / "there")
    WorkerHost("actor", {}, str(tmp_path / "of another machine"))
    WorkerHost("actor", {})
    assert os.getcwd() == str(tmp_path / "there")


def test_what_the_driver_can_import_a_worker_can(tmp_path, monkeypatch, here):
    monkeypatch.setattr(sys, "path", [str(tmp_path / "own")])
    WorkerHost("actor", {}, None, [str(tmp_path / "own"), str(tmp_path / "drivers")])
    assert sys.path == [str(tmp_path / "own"), str(tmp_path / "drivers")]


def test_a_failure_keeps_its_words_and_whether_they_suffice():
    expected = RemoteFailure.of(DeadlineError("too late"))
    assert str(expected) == "DeadlineError: too late"
    assert (expected.is_expected, expected.is_collateral) == (True, True)
    own = RemoteFailure.of(ValueError("the loss is not finite"))
    assert (own.is_expected, own.is_collateral) == (False, False)
    assert "ValueError: the loss is not finite" in own.trace


def test_a_coroutine_is_given_its_time_and_no_more():
    async def late():
        await asyncio.sleep(30.0)

    async def gives_up():
        raise TimeoutError("the environment did not answer")

    with pytest.raises(DeadlineError, match=r"generate did not finish within 0\.01 s"):
        asyncio.run(_within(late(), "generate", 0.01))
    with pytest.raises(TimeoutError, match="the environment did not answer"):
        asyncio.run(_within(gives_up(), "generate", 9.0))
