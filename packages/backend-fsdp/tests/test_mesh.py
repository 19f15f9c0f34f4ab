import pytest
from rl_backend_fsdp.mesh import check_reshard, shard_size
from rl_core.errors import ConfigError


def test_one_copy_over_all_workers_or_several_over_some():
    assert [shard_size(size, 8) for size in (-1, 1, 2, 4, 8)] == [8, 1, 2, 4, 8]


@pytest.mark.parametrize("size", [0, -2, 3, 16])
def test_copies_that_do_not_fit_the_workers_are_refused(size):
    with pytest.raises(ConfigError, match=f"fsdp_size is {size}"):
        shard_size(size, 8)


def test_weights_stay_gathered_over_a_part_of_the_workers():
    for value in (True, False, 2, 4):
        check_reshard(value, 8)
    for value in (1, 3, 8, 0):
        with pytest.raises(ConfigError, match=r"possible are \[2, 4\]"):
            check_reshard(value, 8)
    with pytest.raises(ConfigError, match="possible are none"):
        check_reshard(2, 2)
