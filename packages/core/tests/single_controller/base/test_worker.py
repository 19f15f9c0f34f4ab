import pytest
from rl_core.errors import ConfigError
from rl_core.single_controller.base import DispatchInfo, SoloCollective, Worker, WorkerContext
from rl_core.single_controller.base.decorator import Dispatch, Execute, method_specs


@pytest.fixture
def worker():
    return Worker(WorkerContext(0, 1, 0, 1, "cpu", SoloCollective(), "10.0.0.7", 29500))


def test_a_worker_knows_its_place(worker):
    assert (worker.rank, worker.world_size, worker.local_rank, worker.device) == (0, 1, 0, "cpu")
    assert worker.collective.all_gather_object(1) == [1]
    assert worker.get_master_addr_port() == ("10.0.0.7", 29500)


def test_a_mesh_is_described_once_and_then_known(worker):
    worker.register_dispatch_info("train", dp_rank=1, dp_size=2, is_collect=False)
    assert worker.dispatch_info("train") == DispatchInfo(1, 2, False)
    with pytest.raises(ConfigError, match="describes mesh 'train' twice on rank 0"):
        worker.register_dispatch_info("train", dp_rank=0, dp_size=2, is_collect=True)


def test_an_unknown_mesh_is_named_with_the_known_ones(worker):
    with pytest.raises(ConfigError, match="knows no mesh 'rollout' on rank 0; it described none"):
        worker.dispatch_info("rollout")
    worker.register_dispatch_info("train", dp_rank=0, dp_size=1, is_collect=True)
    with pytest.raises(ConfigError, match="it described 'train'"):
        worker.dispatch_info("rollout")


def test_functions_run_with_and_without_the_worker(worker):
    assert worker.execute_with_func_generator(lambda own, x, y: (own is worker, x + y), 1, y=2) == (True, 3)
    assert worker.execute_func_rank_zero(lambda x, y: x * y, 3, y=4) == 12


def test_what_a_group_binds():
    specs = method_specs(Worker)
    assert set(specs) == {"execute_func_rank_zero", "execute_with_func_generator", "get_master_addr_port"}
    assert specs["execute_func_rank_zero"].execute_mode is Execute.RANK_ZERO
    assert specs["execute_with_func_generator"].dispatch_mode is Dispatch.DP_COMPUTE_PROTO_WITH_FUNC


def test_a_worker_that_is_not_fused_has_no_other_roles(worker):
    with pytest.raises(ConfigError, match=r"no role 'critic' shares this process.*not fused"):
        worker.get_fused_worker_by_name("critic")
