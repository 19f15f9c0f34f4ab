"""Handle columns: nothing is read before a worker asks."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from rl_dataproto import ColumnError, ColumnHandle, DataProto, NpyRowSource, RowSource


@dataclass(frozen=True)
class Numbered:
    """Row r of source s reads as 100 s + r."""

    number: int

    def read(self, rows):
        return 100 * self.number + rows


@dataclass(frozen=True)
class Forbidden:
    """Fails when it is read."""

    def read(self, rows):
        msg = f"read {rows}"
        raise AssertionError(msg)


def test_rows_stay_where_they_are_through_every_operation():
    data = DataProto.from_dict(None, {"image": ColumnHandle(Forbidden(), range(8)), "uid": list("abcdefgh")})
    parts = data.chunk(4)
    out = DataProto.concat(parts[::-1]).repeat(2)[1:-1:3].select()
    out.reorder(list(range(len(out)))[::-1])
    out.union(DataProto.from_dict(None, {"uid": out.non_tensor_batch["uid"]}))
    out = pickle.loads(pickle.dumps(out))
    letters = dict(enumerate("abcdefgh"))
    assert [letters[row] for row in out.non_tensor_batch["image"].rows] == out.non_tensor_batch["uid"].tolist()
    assert len(out) == 5


def test_resolve_reads_each_source_once_and_keeps_the_order():
    first, second = ColumnHandle(Numbered(1), [5, 6]), ColumnHandle(Numbered(2), [5, 7])
    both = ColumnHandle.concat([first, second, first])
    assert len(both.sources) == 2
    assert both.take(np.array([3, 0, 4, 1])).resolve().tolist() == [207, 105, 105, 106]
    assert both.slice(0, 0).resolve().tolist() == []
    assert repr(first) == "ColumnHandle(2 rows of Numbered(number=1))"


def test_resolve_of_sources_with_other_shapes_gives_objects():
    @dataclass(frozen=True)
    class Wide:
        def read(self, rows):
            return np.stack([rows, rows], axis=1)

    read = ColumnHandle.concat([ColumnHandle(Numbered(0), [1]), ColumnHandle(Wide(), [2])]).resolve()
    assert read.dtype == object
    assert read[0] == 1
    assert read[1].tolist() == [2, 2]


def test_a_source_that_returns_other_rows_is_an_error():
    @dataclass(frozen=True)
    class Short:
        def read(self, rows):
            return rows[:1]

    with pytest.raises(ColumnError, match="asked for 2 rows and returned 1"):
        ColumnHandle(Short(), [1, 2]).resolve()


def test_pickle_is_small_and_leaves_unused_sources_behind():
    both = ColumnHandle.concat([ColumnHandle(Numbered(number), range(1000)) for number in range(50)])
    part = pickle.loads(pickle.dumps(both.slice(1500, 1510)))
    assert part.sources == (Numbered(1),)
    assert part.resolve().tolist() == list(range(600, 610))
    assert len(pickle.dumps(both.slice(1500, 1510))) < 600


def test_npy_source_reads_rows_of_a_file(tmp_path):
    file = tmp_path / "images.npy"
    np.save(file, np.arange(12).reshape(6, 2))
    source = NpyRowSource(file)
    assert isinstance(source, RowSource)
    assert ColumnHandle(source, [4, 0, 4]).resolve().tolist() == [[8, 9], [0, 1], [8, 9]]
    np.save(file, np.array([{"a": 1}]), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects"):
        ColumnHandle(source, [0]).resolve()


@pytest.mark.parametrize("rows", [[-1], [0.5], [[1]], np.array([True])])
def test_row_numbers_are_checked(rows):
    with pytest.raises(ColumnError, match="integers from 0 on"):
        ColumnHandle(Numbered(0), rows)


def test_equality_needs_equal_sources_and_rows():
    a = ColumnHandle(Numbered(1), [1, 2])
    assert a.equals(ColumnHandle(Numbered(1), [1, 2]))
    assert not a.equals(ColumnHandle(Numbered(2), [1, 2]))
    assert not a.equals(ColumnHandle(Numbered(1), [1, 3]))
    assert not a.equals(ColumnHandle(Numbered(1), [1]))
