"""The suite for batches: what every stage relies on when a batch is cut, joined and sent.

::

    class TestMyBatch(ColumnsContract):
        batch_class = MyBatch
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from rl_dataproto import ColumnHandle, DataProto, jagged_from_rows
from rl_dataproto.jagged import Jagged
from torch import Tensor

from rl_testing.contracts.suite import ContractSuite

Row = dict[str, Any]
"""Column name -> dtype and value of one row, as plain data."""

NUM_ROWS = 6


@dataclass(frozen=True)
class Unread:
    """A source of rows that nobody may read here."""

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Raise AssertionError."""
        msg = f"rows {rows} of a handle were read; only a worker that needs the values may do that"
        raise AssertionError(msg)


def tensors_of(batch: DataProto) -> dict[str, Tensor]:
    """The tensor columns, possibly none."""
    return {} if batch.batch is None else dict(batch.batch.items())


def names_of(batch: DataProto) -> set[str]:
    """Names of all columns."""
    return {*tensors_of(batch), *batch.non_tensor_batch}


def rows_of(batch: DataProto) -> list[Row]:
    """Every row as plain data; of handles, the row numbers."""
    columns: dict[str, Sequence[Any]] = {}
    for name, column in tensors_of(batch).items():
        pieces = Jagged.of(column).rows() if column.is_nested else column.unbind()
        columns[name] = [(str(piece.dtype), piece.tolist()) for piece in pieces]
    for name, other in batch.non_tensor_batch.items():
        columns[name] = other.rows.tolist() if isinstance(other, ColumnHandle) else [repr(cell) for cell in other]
    assert {name: len(column) for name, column in columns.items()} == dict.fromkeys(columns, len(batch))
    return [{name: column[number] for name, column in columns.items()} for number in range(len(batch))]


class ColumnsContract(ContractSuite):
    """Override ``batch_class``."""

    batch_class: type[DataProto] = DataProto

    @pytest.fixture
    def batch(self) -> DataProto:
        """Six rows with every kind of column."""
        return self.batch_class.from_dict(
            tensors={
                "ids": torch.arange(2 * NUM_ROWS).reshape(NUM_ROWS, 2),
                "half": (torch.arange(NUM_ROWS) / 4).to(torch.bfloat16),
                "tokens": jagged_from_rows([torch.arange(number % 3) + 10 * number for number in range(NUM_ROWS)]),
            },
            non_tensors={
                "uid": [f"u{number}" for number in range(NUM_ROWS)],
                "cell": [None, float("nan"), 1.5, "text", [1, 2], {"a": 1}],
                "images": ColumnHandle(Unread(), np.arange(NUM_ROWS) + 100),
            },
            meta_info={"temperature": 1.0, "timing": {"gen": 2.0}},
        )

    def test_metadata_is_not_shared(self, batch: DataProto) -> None:
        """What one part writes into its metadata, no other part and no whole sees, however deep it is.

        If this fails: chunks share a dictionary, or one inside it.
        """
        first, second, third = batch.chunk(3)
        first.meta_info["temperature"] = 9.0
        second.meta_info["timing"]["gen"] = 9.0
        for untouched in (third, batch):
            assert untouched.meta_info == {"temperature": 1.0, "timing": {"gen": 2.0}}

    def test_concat_undoes_chunk(self, batch: DataProto) -> None:
        """Equal parts, joined again, are the batch.

        If this fails: a part loses rows or columns, or rows change their order.
        """
        for chunks in (1, 2, 3, 6):
            parts = batch.chunk(chunks)
            assert [len(part) for part in parts] == [NUM_ROWS // chunks] * chunks
            joined = self.batch_class.concat(parts)
            assert rows_of(joined) == rows_of(batch)
            assert joined.meta_info == batch.meta_info

    def test_uneven_chunks_are_refused(self, batch: DataProto) -> None:
        """Rows that do not divide are an error that names both numbers.

        If this fails: a worker would silently get fewer rows, or none.
        """
        with pytest.raises(ValueError, match=r"6 rows.* 4 "):
            batch.chunk(4)

    def test_uneven_chunks_are_near_equal_when_allowed(self, batch: DataProto) -> None:
        """Allowed, exactly the asked number of parts comes, none more than a row larger than another.

        If this fails: parts are cut as ``torch.chunk`` cuts, whose last part is short and which may return fewer.
        """
        parts = batch.chunk(4, allow_uneven=True)
        assert [len(part) for part in parts] == [2, 2, 1, 1]
        assert [row for part in parts for row in rows_of(part)] == rows_of(batch)

    def test_more_parts_than_rows_leave_some_empty(self, batch: DataProto) -> None:
        """A part without rows still has every column and the metadata.

        If this fails: a rank without rows would not know what it works on.
        """
        parts = batch.slice(0, 2).chunk(4, allow_uneven=True)
        assert [len(part) for part in parts] == [1, 1, 0, 0]
        for part in parts:
            assert names_of(part) == names_of(batch)
            assert part.meta_info == batch.meta_info
        assert rows_of(self.batch_class.concat(parts)) == rows_of(batch)[:2]

    def test_rows_are_chosen_by_number(self, batch: DataProto) -> None:
        """Rows come in the asked order, repeats and negative numbers included; numbers outside are errors.

        If this fails: rows are chosen as a set, or a number wraps around.
        """
        expected = [rows_of(batch)[number] for number in (4, 0, 5, 4)]
        for numbers in ([4, 0, -1, 4], np.array([4, 0, 5, 4]), torch.tensor([4, 0, 5, 4])):
            assert rows_of(batch.select_idxs(numbers)) == expected
            assert rows_of(batch[numbers]) == expected
        assert len(batch.select_idxs([])) == 0
        with pytest.raises(IndexError, match="6"):
            batch.select_idxs([0, 6])

    def test_rows_are_chosen_by_mask(self, batch: DataProto) -> None:
        """A mask keeps the rows where it is true; one of another length is an error.

        If this fails: the mask is read as the row numbers 0 and 1.
        """
        mask = [False, True, True, False, False, True]
        for given in (mask, np.array(mask), torch.tensor(mask)):
            assert rows_of(batch.select_idxs(given)) == [rows_of(batch)[number] for number in (1, 2, 5)]
        with pytest.raises(IndexError, match="5"):
            batch.select_idxs(torch.ones(5, dtype=torch.bool))

    def test_slices_follow_python(self, batch: DataProto) -> None:
        """Any start, end and step mean what they mean for a list.

        If this fails: a step, a negative number or an open end is ignored.
        """
        bounds = [
            (None, None, None),
            (1, 4, None),
            (-2, None, None),
            (0, 6, 2),
            (None, None, -1),
            (5, 0, -2),
            (4, 2, 1),
        ]
        for start, end, step in bounds:
            expected = rows_of(batch)[start:end:step]
            assert rows_of(batch.slice(start, end, step)) == expected
            assert rows_of(batch[start:end:step]) == expected

    def test_one_row_by_number(self, batch: DataProto) -> None:
        """A number gives one row, not a batch of one.

        If this fails: code that walks over rows gets tensors with a dimension too many.
        """
        row = batch[-2]
        assert not isinstance(row, DataProto)
        assert row.batch["ids"].tolist() == [8, 9]
        assert row.batch["tokens"].tolist() == [40]
        assert row.non_tensor_batch["uid"] == "u4"
        assert row.non_tensor_batch["cell"] == [1, 2]
        with pytest.raises(IndexError, match="6"):
            batch[NUM_ROWS]

    def test_repeat_keeps_copies_together_or_tiles(self, batch: DataProto) -> None:
        """``interleave`` gives a a b b; without it, a b a b.

        If this fails: the samples of a prompt do not stand where the group expects them.
        """
        rows = rows_of(batch)
        assert rows_of(batch.repeat(2, interleave=True)) == [row for row in rows for _ in range(2)]
        assert rows_of(batch.repeat(2, interleave=False)) == rows + rows
        assert len(batch.repeat(0)) == 0

    def test_reorder_permutes_in_place(self, batch: DataProto) -> None:
        """Every column of the batch is permuted; a view of the old order keeps it.

        If this fails: non-tensor columns stay behind, or the rows are permuted in memory that others look at.
        """
        order = [5, 0, 3, 1, 2, 4]
        view, rows = batch.slice(0, NUM_ROWS), rows_of(batch)
        batch.reorder(torch.tensor(order))
        assert rows_of(batch) == [rows[number] for number in order]
        assert rows_of(view) == rows

    def test_what_is_no_permutation_is_refused(self, batch: DataProto) -> None:
        """Reordering by numbers that are not each row once is an error, and changes nothing.

        If this fails: rows are lost or doubled under the name of an order.
        """
        rows = rows_of(batch)
        for wrong in ([0, 0, 1, 2, 3, 4], [0, 1, 2]):
            with pytest.raises(ValueError, match="row"):
                batch.reorder(torch.tensor(wrong))
        assert rows_of(batch) == rows

    def test_a_batch_survives_the_trip_to_another_process(self, batch: DataProto) -> None:
        """Pickled, in and out of band, a batch keeps values, dtypes, classes and metadata.

        If this fails: a dtype without a numpy twin is widened, a jagged column padded, or a handle resolved.
        """
        buffers: list[pickle.PickleBuffer] = []
        out_of_band = pickle.dumps(batch, protocol=5, buffer_callback=buffers.append)
        for arrived in (pickle.loads(pickle.dumps(batch)), pickle.loads(out_of_band, buffers=buffers)):
            assert rows_of(arrived) == rows_of(batch)
            assert arrived.meta_info == batch.meta_info
            assert tensors_of(arrived)["tokens"].is_nested

    def test_conflicting_metadata_is_not_lost(self, batch: DataProto) -> None:
        """Parts that disagree on a setting cannot be joined; timings may differ, and the slowest is kept.

        If this fails: one part's metadata stands for all, or measured times are compared like settings.
        """
        first, second = batch.chunk(2)
        first.meta_info["only_here"] = 3
        second.meta_info["timing"] = {"gen": 5.0}
        joined = self.batch_class.concat([first, second])
        assert joined.meta_info == {"temperature": 1.0, "timing": {"gen": 5.0}, "only_here": 3}
        second.meta_info["temperature"] = 2.0
        with pytest.raises(ValueError, match="temperature"):
            self.batch_class.concat([first, second])

    def test_nothing_cannot_be_joined(self) -> None:
        """A list without batches is an error that says so.

        If this fails: the first of no batches is looked at.
        """
        with pytest.raises(ValueError, match="at least one"):
            self.batch_class.concat([])

    def test_union_adds_columns(self, batch: DataProto) -> None:
        """Columns of two batches with the same rows come together; equal ones, NaN and None included, may be in both.

        If this fails: cells are compared with ``==``, for which NaN differs from itself; or an empty side is refused.
        """
        left = batch.select(["ids"], ["uid", "cell"])
        right = batch.select(["half", "tokens"], ["cell", "images"])
        assert left.union(right) is left
        assert rows_of(left.select(list(tensors_of(batch)), list(batch.non_tensor_batch))) == rows_of(batch)
        before = rows_of(left)
        assert rows_of(left.union(self.batch_class())) == before

    def test_union_refuses_what_differs(self, batch: DataProto) -> None:
        """A column that both sides have with different values is an error that names it.

        If this fails: one side wins without a word.
        """
        for name, column in (("ids", tensors_of(batch)["ids"] + 1), ("uid", ["other"] * NUM_ROWS)):
            other = self.batch_class.from_single_dict({name: column})
            with pytest.raises(ValueError, match=name):
                batch.select().union(other)

    def test_operations_leave_their_input_alone(self, batch: DataProto) -> None:
        """Nothing but what works in place changes a batch, its metadata included.

        If this fails: an operation sorts, joins or notes something in the batch it was given.
        """
        rows, meta = rows_of(batch), {"temperature": 1.0, "timing": {"gen": 2.0}}
        batch.chunk(2)
        batch.slice(1, 5, 2)
        batch.select_idxs([3, 1])
        batch.repeat(2)
        self.batch_class.concat([batch, batch])
        batch.select(["ids"]).union(batch)
        assert rows_of(batch) == rows
        assert batch.meta_info == meta

    def test_handles_are_not_resolved(self, batch: DataProto) -> None:
        """Cutting and joining works on row numbers; no row is read.

        If this fails: images would pass through the controller.
        """
        parts = batch.chunk(2)
        for part in (*parts, self.batch_class.concat(parts), batch.repeat(2), batch.select_idxs([1])):
            assert isinstance(part.non_tensor_batch["images"], ColumnHandle)
        assert parts[1].non_tensor_batch["images"].rows.tolist() == [103, 104, 105]

    def test_select_keeps_what_was_asked(self, batch: DataProto) -> None:
        """Exactly the named columns and metadata stay; a name that is not there is an error.

        If this fails: a misspelt column is left out, and its reader fails later without a cause.
        """
        chosen = batch.select(["ids"], ["uid"], ["temperature"])
        assert names_of(chosen) == {"ids", "uid"}
        assert chosen.meta_info == {"temperature": 1.0}
        for kind in ("batch_keys", "non_tensor_batch_keys", "meta_info_keys"):
            wrong: dict[str, Any] = {kind: ["idz"]}
            with pytest.raises(KeyError, match="idz"):
                batch.select(**wrong)
