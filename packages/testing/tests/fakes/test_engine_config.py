from __future__ import annotations

import pytest
from rl_core.errors import ConfigError
from rl_testing.fakes.engine_config import FakeEngineConfig, Layout


@pytest.mark.parametrize(
    ("world_size", "sizes", "expected"),
    [
        (1, {}, (1, 1, 1)),
        (2, {}, (1, 2, 1)),
        (3, {}, (3, 1, 1)),
        (4, {}, (1, 2, 2)),
        (8, {}, (2, 2, 2)),
        (4, {"pipeline_size": 2}, (2, 2, 1)),
        (4, {"vocab_parallel_size": 2}, (2, 1, 2)),
        (4, {"pipeline_size": 4}, (1, 4, 1)),
        (2, {"pipeline_size": 1, "vocab_parallel_size": 1}, (2, 1, 1)),
    ],
)
def test_layouts(world_size, sizes, expected):
    config = FakeEngineConfig(**sizes)
    layouts = [Layout.of(rank, world_size, config) for rank in range(world_size)]

    assert {(one.dp_size, one.pp_size, one.tp_size) for one in layouts} == {expected}
    assert [one.rank_of(dp_rank=one.dp_rank, pp_rank=one.pp_rank, tp_rank=one.tp_rank) for one in layouts] == list(
        range(world_size)
    )


def test_vocabulary_is_shared_by_neighbours():
    places = [Layout.of(rank, 4, FakeEngineConfig()) for rank in range(4)]

    assert [(place.pp_rank, place.tp_rank) for place in places] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    "sizes", [{"pipeline_size": 3}, {"pipeline_size": 2, "vocab_parallel_size": 4}, {"pipeline_size": -1}]
)
def test_workers_that_do_not_divide_are_refused(sizes):
    with pytest.raises(ConfigError, match="must divide the number of workers; there are 4"):
        Layout.of(0, 4, FakeEngineConfig(**sizes))
