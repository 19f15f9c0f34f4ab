import numpy as np
import pytest
import ray
import torch
from rl_core.runtime.ray.payload import Shared, is_small, opened, ship
from rl_core.single_controller.base import Call, Progress
from rl_dataproto import DataProto


@pytest.fixture
def store(monkeypatch):
    """Ray's object store as a list; a reference is a place in it."""
    kept = []

    def put(value):
        kept.append(value)
        return len(kept) - 1

    monkeypatch.setattr(ray, "put", put)
    monkeypatch.setattr(ray, "get", lambda ref: kept[ref])
    return kept


def batch():
    return DataProto.from_dict({"x": torch.arange(3)})


def test_a_value_that_all_read_is_stored_once(store):
    whole, table = batch(), np.zeros(100_000)
    travelling = ship({rank: Call((whole, rank), {"table": table}) for rank in range(4)})

    assert [id(value) for value in store] == [id(whole), id(table)]
    for rank, call in travelling.items():
        assert isinstance(call.args[0], Shared)
        arrived = opened(call)
        assert arrived.args[0] is whole
        assert arrived.args[1] == rank
        assert arrived.kwargs["table"] is table


def test_peers_that_share_a_piece_read_one_copy_of_it(store):
    pieces = [batch(), batch()]
    travelling = ship({rank: Call((pieces[rank // 2],), answers=rank % 2 == 1) for rank in range(4)})
    assert [id(value) for value in store] == [id(piece) for piece in pieces]
    assert [call.args[0].ref for call in travelling.values()] == [0, 0, 1, 1]
    assert [call.answers for call in travelling.values()] == [False, True, False, True]


def test_what_one_worker_reads_goes_with_its_call(store):
    calls = {rank: Call((batch(),)) for rank in range(3)}
    assert ship(calls) == calls
    assert store == []


def test_small_values_go_with_every_call(store):
    calls = {rank: Call((1, "text", [1, 2], {"a": None}), {"flag": True}) for rank in range(3)}
    assert ship(calls) == calls
    assert store == []


@pytest.mark.parametrize(
    ("value", "small"),
    [
        (None, True),
        (1.5, True),
        ("a" * 100, True),
        ("a" * 100_000, False),
        (b"a" * 100_000, False),
        (np.zeros(10), True),
        (np.zeros(100_000), False),
        (torch.zeros(10), True),
        (torch.zeros(100_000), False),
        ([1, [2, {"a": 3}]], True),
        ([1, [2, {"a": np.zeros(100_000)}]], False),
        (list(range(1000)), False),
        ({"a" * 100_000: 1}, False),
        (batch(), False),
        (lambda: None, False),
        (Progress(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_counts_as_small(value, small):
    assert is_small(value) is small
