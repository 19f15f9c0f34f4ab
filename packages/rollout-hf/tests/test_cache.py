from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_rollout_hf.cache import BLOCK, Filling, LayerShape, Need, RowCache, Stepping, capacity_for

LAYERS = [LayerShape(2, 3, 5), LayerShape(1, 3, 3)]


def new_cache(rows=4, length=10):
    cache = RowCache(LAYERS, torch.float32, torch.device("cpu"))
    need = Need(rows=rows, length=length, likely_rows=rows, likely_length=length)
    cache.fit(need, rows * length, kept_rows=0, kept_length=0)
    return cache


def states(batch, length, layer=0, offset=0.0):
    """Different numbers for every prompt and column, [B, heads, L, dim]."""
    shape = LAYERS[layer]
    numbers = torch.arange(batch)[:, None] * 100.0 + torch.arange(length) + 1 + offset
    keys = numbers[:, None, :, None].expand(-1, shape.num_heads, -1, shape.key_dim)
    values = -numbers[:, None, :, None].expand(-1, shape.num_heads, -1, shape.value_dim)
    return keys.clone(), values.clone()


def row(cache, number, layer=0):
    """Keys of a row, as the one number that a column holds."""
    assert torch.equal(cache.keys[layer][number, 0, :, 0], -cache.values[layer][number, 0, :, 0])
    return cache.keys[layer][number, 0, :, 0].tolist()


def test_bytes_of_a_token():
    # (2 x (3 + 5) + 1 x (3 + 3)) numbers of 2 bytes
    assert RowCache(LAYERS, torch.bfloat16, torch.device("cpu")).bytes_per_token == 44


def test_prompts_are_stored_from_column_zero_and_padding_as_zeros():
    cache = new_cache()
    keys, values = states(2, 3)
    keys[1, :, 2], values[1, :, 2] = math.nan, math.inf
    returned = Filling(cache, rows=[0, 2, 3], sources=[0, 1, 0], lengths=[3, 2]).update(keys, values, 0)
    assert returned[0] is keys
    assert returned[1] is values
    assert [row(cache, number)[:4] for number in range(4)] == [
        [1, 2, 3, 0],
        [0, 0, 0, 0],
        [101, 102, 0, 0],
        [1, 2, 3, 0],
    ]
    assert torch.isfinite(cache.keys[0]).all()


def test_a_step_writes_at_each_rows_position_and_sees_the_rows():
    cache = new_cache()
    Filling(cache, [0, 1], [0, 1], [3, 2]).update(*states(2, 3), 0)
    view = Stepping(cache, torch.tensor([3, 2]), length=4)
    keys, values = view.update(*states(2, 1, offset=50), 0)
    assert keys[:, 0, :, 0].tolist() == [[1, 2, 3, 51], [101, 102, 151, 0]]
    assert values.shape == (2, 2, 4, 5)
    assert keys.data_ptr() == cache.keys[0].data_ptr()


def test_rows_move_and_are_cleared():
    cache = new_cache()
    Filling(cache, [0, 3], [0, 1], [3, 3]).update(*states(2, 3), 0)
    cache.move([(3, 1)], length=2)
    assert row(cache, 1)[:3] == [101, 102, 0]
    cache.keys[0][1, 0, 1, 0] = math.nan
    cache.clear(1)
    assert row(cache, 1) == [0] * cache.length


def test_growing_keeps_the_rows_that_run():
    cache = new_cache(rows=2, length=10)
    Filling(cache, [0, 1], [0, 1], [3, 3]).update(*states(2, 3), 0)
    before = cache.keys[0]
    cache.fit(Need(rows=3, length=20, likely_rows=5, likely_length=30), 300, kept_rows=1, kept_length=2)
    assert cache.keys[0] is not before
    assert cache.rows >= 3
    assert cache.length >= 20
    assert row(cache, 0)[:4] == [1, 2, 0, 0]
    assert row(cache, 1) == [0] * cache.length


def test_what_is_large_enough_stays_while_somebody_runs():
    cache = new_cache(rows=4, length=100)
    before = cache.keys[0]
    cache.fit(Need(rows=1, length=2, likely_rows=1, likely_length=2), 400, kept_rows=1, kept_length=1)
    assert cache.keys[0] is before


def test_an_idle_cache_gets_the_layout_of_a_new_one():
    need = Need(rows=2, length=7, likely_rows=3, likely_length=40)
    used, fresh = new_cache(rows=9, length=200), RowCache(LAYERS, torch.float32, torch.device("cpu"))
    for cache in (used, fresh):
        cache.fit(need, 5000, kept_rows=0, kept_length=0)
    assert (used.rows, used.length) == (fresh.rows, fresh.length)


def test_freed_memory_is_gone_even_where_a_view_is_left():
    cache = new_cache()
    views = [tensor[:1] for tensor in (*cache.keys, *cache.values)]
    assert all(view.untyped_storage().nbytes() for view in views)
    cache.free()
    assert [view.untyped_storage().nbytes() for view in views] == [0] * 4
    assert (cache.rows, cache.length) == (0, 0)


@pytest.mark.parametrize(
    ("need", "budget", "expected"),
    [
        (Need(rows=2, length=10, likely_rows=8, likely_length=500), 100_000, (8, 500)),  # room for everything
        (Need(rows=2, length=10, likely_rows=8, likely_length=500), 8 * 100, (8, 100)),  # rows first, then length
        (Need(rows=2, length=10, likely_rows=8, likely_length=500), 4 * BLOCK, (4, BLOCK)),  # only some rows
        (Need(rows=2, length=10, likely_rows=8, likely_length=500), 20, (2, 10)),  # no room for a block
    ],
)
def test_capacity(need, budget, expected):
    assert capacity_for(need, budget) == expected


@given(rows=st.integers(1, 20), length=st.integers(1, 300), more=st.integers(0, 40), longer=st.integers(0, 900))
def test_capacity_holds_what_is_needed_within_the_budget(rows, length, more, longer):
    need = Need(rows=rows, length=length, likely_rows=rows + more, likely_length=length + longer)
    for budget in (rows * length, rows * length + 77, 50_000):
        if budget >= rows * length:
            found_rows, found_length = capacity_for(need, budget)
            assert found_rows >= rows
            assert found_length >= length
            assert found_rows * found_length <= budget
