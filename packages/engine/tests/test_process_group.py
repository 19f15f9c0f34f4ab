import pytest
import torch
import torch.distributed as dist
from rl_core.errors import ConfigError, WorkerError
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_engine.process_group import ProcessGroupLease, backends_for
from rl_testing.contracts.ranks import ThreadRanks

SOLO = WorkerContext(0, 1, 0, 1, "cpu", SoloCollective())


@pytest.fixture(autouse=True)
def no_group_is_left():
    yield
    was_open = dist.is_initialized()
    if was_open:
        dist.destroy_process_group()
    assert not was_open


def test_the_last_lease_closes_what_the_first_opened():
    first, second = ProcessGroupLease(), ProcessGroupLease()
    first.acquire(SOLO)
    second.acquire(SOLO)
    first.acquire(SOLO)
    assert dist.get_world_size() == 1
    first.release()
    first.release()
    assert dist.is_initialized()
    second.release()
    assert not dist.is_initialized()


def test_it_can_be_opened_again():
    for _ in range(2):
        lease = ProcessGroupLease()
        lease.acquire(SOLO)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        lease.release()
    assert tensor.item() == 1


def test_a_group_that_was_open_is_used_and_left():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    lease = ProcessGroupLease()
    lease.acquire(SOLO)
    lease.release()
    assert dist.is_initialized()
    dist.destroy_process_group()


def test_another_group_than_the_workers_is_refused():
    class TwoHomes(SoloCollective):
        def all_gather_object(self, obj, timeout_s=None):
            return [obj, ("elsewhere", 1)]

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(WorkerError, match=r"rank 1 of 2, but .* rank 0 of 1"):
            ProcessGroupLease().acquire(WorkerContext(1, 2, 0, 1, "cpu", TwoHomes()))
    finally:
        dist.destroy_process_group()


def test_workers_need_a_port_to_meet_on():
    class TwoHomes(SoloCollective):
        def all_gather_object(self, obj, timeout_s=None):
            return [obj, ("elsewhere", 1)]

    with pytest.raises(WorkerError, match="no port to meet its peers on"):
        ProcessGroupLease().acquire(WorkerContext(0, 2, 0, 1, "cpu", TwoHomes()))


def acquire(context):
    ProcessGroupLease().acquire(context)


def test_threads_of_one_process_are_refused_on_every_rank():
    ranks = ThreadRanks(2, lambda context: context, deadline_s=10)
    outcomes = ranks.outcomes(acquire)
    ranks.close()
    for outcome in outcomes:
        assert isinstance(outcome, ConfigError), outcome
        assert "ranks [0, 1] of 2 live in one process" in str(outcome)
        assert "trainer.runtime=ray" in str(outcome)


def test_objects_travel_by_the_cpu_on_every_device():
    assert backends_for(torch.device("cpu")) == "gloo"
    assert backends_for(torch.device("cuda:1")) == "cpu:gloo,cuda:nccl"
