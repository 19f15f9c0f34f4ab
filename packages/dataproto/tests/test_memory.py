"""Output buffers of large operations."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from rl_dataproto import DataProto, jagged_from_rows, memory, release_buffers
from rl_dataproto.memory import BufferPool, empty_bytes, empty_like_rows, may_write_out

MIB = 2**20


def test_freed_memory_comes_back_for_the_next_result():
    pool = BufferPool(limit=64 * MIB)
    first = pool.buffer(10 * MIB)
    address = first.ctypes.data
    tensor = torch.from_numpy(first).view(torch.int64)[1:].view(-1)
    del first
    assert pool.kept_bytes == 0  # a view of a view still reads it
    del tensor
    assert pool.kept_bytes == 10 * MIB
    again = pool.buffer(10 * MIB - 5)  # the same size class
    assert (again.ctypes.data, len(again), pool.kept_bytes) == (address, 10 * MIB - 5, 0)
    other = pool.buffer(10 * MIB)
    assert other.ctypes.data != address


def test_no_more_than_the_limit_is_kept_and_the_oldest_goes_first():
    pool = BufferPool(limit=20 * MIB)
    buffers = [pool.buffer(size * MIB) for size in (8, 9, 10, 32)]
    addresses = [buffer.ctypes.data for buffer in buffers]
    while buffers:
        buffers.pop(0)
    assert pool.kept_bytes == 19 * MIB  # 8 went for 10, 32 was never kept
    assert pool.buffer(9 * MIB).ctypes.data == addresses[1]
    pool.release()
    assert pool.kept_bytes == 0


@pytest.mark.parametrize("num_bytes", [1, 15, 16, 17, 1000, 4 * MIB, 5 * MIB + 1])
def test_size_classes_waste_at_most_an_eighth(num_bytes):
    size = memory._size_class(num_bytes)
    assert num_bytes <= size <= num_bytes * 9 / 8 + 1
    assert memory._size_class(size) == size


def test_memory_that_dies_during_a_call_is_let_go():
    pool = BufferPool(limit=20 * MIB)
    buffer = pool.buffer(MIB)
    with pool._lock:
        del buffer
    assert pool.kept_bytes == 0
    pool.forget()
    assert pool.buffer(MIB).nbytes == MIB


@pytest.mark.parametrize(("text", "limit"), [("0", 0), ("1.5", MIB * 3 // 2), ("2048", 2048 * MIB)])
def test_the_environment_sets_the_limit(monkeypatch, text, limit):
    monkeypatch.setenv("RL_BUFFER_POOL_MB", text)
    assert memory._limit_bytes() == limit
    monkeypatch.delenv("RL_BUFFER_POOL_MB")
    assert 0 < memory._limit_bytes() <= 1024 * MIB


def test_results_are_never_overwritten_while_somebody_reads_them():
    data = DataProto.from_dict({"x": torch.arange(MIB).reshape(1024, 1024)})  # 8 MiB
    row = data.repeat(1).batch["x"][7]
    array = data.repeat(1).batch["x"].numpy()[9]
    for _ in range(3):
        data.repeat(1).batch["x"].fill_(-1)
    assert row.tolist() == list(range(7 * 1024, 8 * 1024))
    assert array.tolist() == list(range(9 * 1024, 10 * 1024))
    release_buffers()
    assert memory._pool.kept_bytes == 0
    assert len(empty_bytes(3)) == 3
    assert len(empty_bytes(5 * MIB)) == 5 * MIB


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.bool], ids=str)
@pytest.mark.parametrize("rows", [3, 9000])
def test_buffers_have_the_shape_and_dtype_of_rows(dtype, rows):
    column = torch.zeros(2, 1000, dtype=dtype)
    out = empty_like_rows(column, (rows, 1000))
    assert (out.shape, out.dtype, out.is_contiguous()) == ((rows, 1000), dtype, True)
    out.fill_(1)
    assert out.all()


def test_large_operations_give_the_same_as_small_ones():
    column = torch.arange(1200 * 1000).reshape(1200, 1000)  # 9.6 MB: beyond where buffers come from numpy
    data = DataProto.from_dict({"x": column, "j": jagged_from_rows(list(column)), "h": column.to(torch.bfloat16)})
    numbers = np.random.default_rng(0).permutation(1200)
    taken = data[numbers]
    assert torch.equal(taken.batch["x"], column[torch.from_numpy(numbers)])
    assert torch.equal(taken.batch["j"].values().view(1200, 1000), taken.batch["x"])
    assert torch.equal(taken.batch["h"], column.to(torch.bfloat16)[torch.from_numpy(numbers)])
    assert torch.equal(data.repeat(2).batch["x"], column.repeat_interleave(2, 0))
    assert torch.equal(data.repeat(2, interleave=False).batch["x"], column.repeat(2, 1))
    assert DataProto.concat([part.clone() for part in data.chunk(5)]).equals(data)


def test_columns_that_need_a_gradient_pass_it_on():
    leaf = torch.ones(4, 2, requires_grad=True)
    assert not may_write_out(leaf)
    data = DataProto.from_dict({"x": leaf * 1.0})
    out = DataProto.concat([data.repeat(2), data[[3, 3]], data[:1], data.repeat(1, interleave=False)])
    out.batch["x"].sum().backward()
    assert leaf.grad.tolist() == [[4, 4], [3, 3], [3, 3], [5, 5]]


def test_a_part_of_a_buffer_keeps_the_whole_from_being_used_again():
    pool = BufferPool(2**30)
    buffer = pool.buffer(8 * 2**20)
    part = buffer[100:200]
    part[:] = 7
    del buffer
    gc.collect()

    assert pool.kept_bytes == 0
    pool.buffer(8 * 2**20)[:] = 1
    assert part.tolist() == [7] * 100
    del part
    gc.collect()
    assert pool.kept_bytes == 2 * 8 * 2**20
