from __future__ import annotations

import os

import pytest
from rl_core.errors import ConfigError
from rl_core.single_controller.base.collective import WorkerContext
from rl_rollout_vllm.environment import engine_variables, gather_devices, inherited
from rl_rollout_vllm.settings import Replica


class Gathered:
    """A collective in which everybody else said what is given here."""

    def __init__(self, *others):
        self.others = others

    def all_gather_object(self, mine, timeout_s=None):
        return [mine, *self.others]


def context(device="cuda:0", others=(), local_world_size=1):
    return WorkerContext(
        rank=0,
        world_size=max(1 + len(others), local_world_size),
        local_rank=0,
        local_world_size=local_world_size,
        device=device,
        collective=Gathered(*others),
    )


def variables(chosen=None, devices=("0",), deterministic=False):
    return engine_variables(
        chosen or context(),
        Replica(1, 0, 1, 0),
        list(devices),
        deterministic=deterministic,
        start_deadline_s=12.5,
    )


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "here")


def test_the_lead_sees_the_devices_of_its_whole_replica(host, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    found = gather_devices(context(others=[("here", "5"), ("there", "4"), ("there", "5")]), Replica(2, 0, 2, 0))
    assert found == ["4", "5"]


def test_devices_that_are_not_hidden_are_counted(host, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gather_devices(context("cuda:3"), Replica(1, 0, 1, 0)) == ["3"]


def test_a_replica_stands_on_one_host(host):
    with pytest.raises(ConfigError, match=r"hosts here, there.*tensor_model_parallel_size"):
        gather_devices(context(others=[("there", "1")]), Replica(2, 0, 1, 0))


def test_workers_of_a_replica_have_a_device_each(host, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(ConfigError, match=r"share devices \(0, 0\)"):
        gather_devices(context(others=[("here", "0")]), Replica(2, 0, 1, 0))


def test_the_trainers_process_group_is_not_inherited():
    found = variables()
    assert all(found[name] is None for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"))


def test_a_gpu(monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:64")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    found = variables(devices=("4", "5"))
    assert found["CUDA_VISIBLE_DEVICES"] == "4,5"
    assert found["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:64"
    assert found["PYTORCH_ALLOC_CONF"] is None
    assert "VLLM_CPU_OMP_THREADS_BIND" not in found


def test_a_cpu_is_shared_among_its_workers(monkeypatch):
    for name in ("OMP_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    found = variables(context("cpu", local_world_size=2))
    assert (found["OMP_NUM_THREADS"], found["VLLM_CPU_OMP_THREADS_BIND"]) == ("4", "nobind")
    assert variables(context("cpu", local_world_size=20))["OMP_NUM_THREADS"] == "1"


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0-1")
    monkeypatch.setenv("VLLM_ENGINE_READY_TIMEOUT_S", "5")
    assert not {"OMP_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_ENGINE_READY_TIMEOUT_S"} & set(
        variables(context("cpu"))
    )


def test_the_deadline_and_determinism_reach_vllm(monkeypatch):
    monkeypatch.delenv("VLLM_ENGINE_READY_TIMEOUT_S", raising=False)
    assert variables()["VLLM_ENGINE_READY_TIMEOUT_S"] == "12"
    assert variables(deterministic=True)["VLLM_BATCH_INVARIANT"] == "1"
    assert "VLLM_BATCH_INVARIANT" not in variables()
    assert "VLLM_BATCH_INVARIANT" not in variables(context("cpu"), deterministic=True)  # its kernels are for GPUs


def test_variables_are_for_those_who_start_inside(monkeypatch):
    monkeypatch.setenv("RL_TEST_A", "before")
    monkeypatch.delenv("RL_TEST_B", raising=False)
    with inherited({"RL_TEST_A": None, "RL_TEST_B": "inside"}):
        assert ("RL_TEST_A" in os.environ, os.environ["RL_TEST_B"]) == (False, "inside")
    assert (os.environ["RL_TEST_A"], "RL_TEST_B" in os.environ) == ("before", False)
