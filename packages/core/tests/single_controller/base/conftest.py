import pytest
from rl_core.single_controller.base.call import CallScope
from rl_core.single_controller.base.collective import DispatchInfo


@pytest.fixture
def make_scope():
    """A call scope without a group: ``make_scope(world_size)`` or ``make_scope([(dp_rank, dp_size, collects), ...])``."""

    def make(workers):
        infos = () if isinstance(workers, int) else tuple(DispatchInfo(*worker) for worker in workers)
        world_size = workers if isinstance(workers, int) else len(workers)
        return CallScope("actor", "update", world_size, {"train": infos}.__getitem__)

    return make
