"""Jagged columns: opening, padding, dropping padding, lengths."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from rl_dataproto import (
    ColumnError,
    RowCountError,
    is_jagged,
    jagged_from_rows,
    lengths,
    object_array,
    pad_jagged,
    to_jagged,
)
from rl_dataproto.jagged import Jagged

ROWS = [[1, 2, 3], [], [4]]


def column(dtype=torch.int64):
    return jagged_from_rows(ROWS, dtype=dtype)


def rows_of(nested):
    return [row.tolist() for row in nested.unbind()]


def test_from_rows_takes_tensors_arrays_and_lists():
    assert rows_of(column()) == ROWS
    assert rows_of(jagged_from_rows([torch.arange(2), np.arange(1)])) == [[0, 1], [0]]
    assert jagged_from_rows([torch.zeros(2, 5), torch.zeros(1, 5)]).shape[2] == 5
    assert is_jagged(column())
    assert not is_jagged(torch.zeros(2))
    assert not is_jagged(ROWS)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no rows"),
        ([torch.zeros(2), torch.zeros(2, 2)], r"Row 1.*\(2, 2\)"),
        ([torch.zeros(2), torch.zeros(2, dtype=torch.int64)], "int64"),
        ([torch.tensor(1.0)], r"Row 0.*\(\)"),
    ],
)
def test_from_rows_refuses(rows, words):
    with pytest.raises(ColumnError, match=words):
        jagged_from_rows(rows)


def test_opening_leaves_gaps_out():
    padded = torch.arange(20).reshape(4, 5)
    narrowed = torch.nested.narrow(
        padded, 1, torch.tensor([0, 1, 2, 0]), torch.tensor([2, 2, 3, 5]), layout=torch.jagged
    )
    opened = Jagged.of(narrowed)
    assert opened.offsets.tolist() == [0, 2, 4, 7, 12]
    assert opened.values.tolist() == [0, 1, 6, 7, 12, 13, 14, 15, 16, 17, 18, 19]
    inner = torch.nested.nested_tensor_from_jagged(torch.arange(9), torch.tensor([2, 4, 7]))
    assert Jagged.of(inner).offsets.tolist() == [0, 2, 5]
    assert Jagged.of(inner).values.tolist() == [2, 3, 4, 5, 6]


def test_lengths():
    assert lengths(column()).tolist() == [3, 0, 1]
    assert lengths(torch.zeros(2, 7)).tolist() == [7, 7]
    assert lengths(np.zeros((2, 7))).tolist() == [7, 7]
    assert lengths(object_array([[1, 2], None, np.arange(3)])).tolist() == [2, 0, 3]
    with pytest.raises(ColumnError, match=r"shape \(2,\)"):
        lengths(torch.zeros(2))
    with pytest.raises(ColumnError, match="a list"):
        lengths([1])


def test_pad_right_and_left():
    assert pad_jagged(column(), 0).tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]]
    assert pad_jagged(column(), -1, length=4, side="left").tolist() == [[-1, 1, 2, 3], [-1] * 4, [-1, -1, -1, 4]]
    assert pad_jagged(column(torch.bfloat16), 0.5).dtype == torch.bfloat16
    assert pad_jagged(column(torch.bool), 0).tolist()[2] == [True, False, False]
    assert pad_jagged(object_array([[1], [2, 3]]), 9).tolist() == [[1, 9], [2, 3]]
    assert pad_jagged(Jagged.of(column()).slice(0, 0).close(), 0, length=2).shape == (0, 2)


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64], ids=str
)
def test_pad_of_types_that_torch_hardly_computes_with(dtype):
    rows = [torch.tensor(row, dtype=torch.float32).to(dtype) for row in ROWS]
    padded = pad_jagged(jagged_from_rows(rows), 2, side="left")
    assert padded.dtype == dtype
    assert padded.to(torch.float32).tolist() == [[1, 2, 3], [2, 2, 2], [2, 2, 4]]


def test_pad_keeps_trailing_dimensions():
    two = jagged_from_rows([torch.arange(4).reshape(2, 2), torch.arange(2).reshape(1, 2)])
    assert pad_jagged(two, 7).tolist() == [[[0, 1], [2, 3]], [[0, 1], [7, 7]]]


def test_positions_in_three_lines_pad_in_their_own_dimension():
    values = torch.arange(9).reshape(3, 3)
    nested = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 3]), jagged_dim=2)
    padded = pad_jagged(nested, -1)
    assert padded.tolist() == [[[0, 1], [3, 4], [6, 7]], [[2, -1], [5, -1], [8, -1]]]
    back = to_jagged(padded, torch.tensor([2, 1]), dim=2)
    assert [row.tolist() for row in back.unbind()] == [[[0, 1], [3, 4], [6, 7]], [[2], [5], [8]]]


def test_padding_passes_gradients():
    values = torch.ones(3, requires_grad=True)
    nested = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 3]))
    (pad_jagged(nested, 0.0) * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert values.grad.tolist() == [1, 3, 4]


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"length": 2}, "length 2 was asked, row 0 has 3"),
        ({"side": "both"}, "'both'"),
    ],
)
def test_padding_cuts_nothing_off(kwargs, words):
    with pytest.raises(ColumnError, match=words):
        pad_jagged(column(), 0, **kwargs)
    with pytest.raises(ColumnError, match=r"a Tensor of shape \(2, 2\)"):
        pad_jagged(torch.zeros(2, 2), 0)


def test_to_jagged_by_mask_and_by_lengths():
    padded = torch.tensor([[1, 2, 0], [0, 0, 0], [0, 3, 4]])
    assert rows_of(to_jagged(padded, torch.tensor([[1, 1, 0], [0, 0, 0], [0, 1, 1]]))) == [[1, 2], [], [3, 4]]
    assert rows_of(to_jagged(padded, torch.tensor([2, 0, 3]))) == [[1, 2], [], [0, 3, 4]]
    holes = torch.tensor([[True, False, True]] * 3)
    assert rows_of(to_jagged(padded, holes)) == [[1, 0], [0, 0], [0, 4]]
    assert rows_of(to_jagged(pad_jagged(column(), 0), lengths(column()))) == ROWS


def test_to_jagged_copies_long_rows_one_by_one():
    padded = torch.randn(3, 2000, 2)
    row_lengths = torch.tensor([2000, 0, 1999])
    by_mask = to_jagged(padded, torch.arange(2000) < row_lengths[:, None])
    by_length = to_jagged(padded, row_lengths)
    assert all(torch.equal(a, b) for a, b in zip(by_length.unbind(), by_mask.unbind(), strict=True))
    turned = to_jagged(padded.transpose(1, 2), row_lengths, dim=2)
    assert all(torch.equal(a, b.T) for a, b in zip(turned.unbind(), by_mask.unbind(), strict=True))
    with_gradient = padded.clone().requires_grad_()
    to_jagged(with_gradient, row_lengths).values().sum().backward()
    assert with_gradient.grad.sum(dim=(1, 2)).tolist() == [4000.0, 0.0, 3998.0]


@pytest.mark.parametrize(
    ("mask", "dim", "error", "words"),
    [
        (torch.tensor([1, 2]), 1, RowCountError, "3 rows"),
        (torch.tensor([1, 2, 4]), 1, RowCountError, "at most 3"),
        (torch.tensor([1, -2, 1]), 1, RowCountError, "-2"),
        (torch.ones(3, 2), 1, ColumnError, r"\(3, 2\)"),
        (torch.ones(3), 2, ColumnError, "dimension 2 of shape"),
        (torch.ones(3), 0, ColumnError, "dimension 0"),
    ],
)
def test_to_jagged_refuses(mask, dim, error, words):
    with pytest.raises(error, match=words):
        to_jagged(torch.zeros(3, 3), mask, dim)


@pytest.mark.parametrize("sizes", [[1, 0, 3, 2], [1500, 0, 2000, 1100]], ids=["by element", "row by row"])
def test_taken_rows_are_the_rows(sizes):
    rows = [torch.arange(size) + 10_000 * number for number, size in enumerate(sizes)]
    taken = Jagged.of(jagged_from_rows(rows)).take(np.array([2, 0, 0, 3, 1]))
    assert [row.tolist() for row in taken.rows()] == [rows[number].tolist() for number in (2, 0, 0, 3, 1)]


def test_cut_parts_are_views_of_the_rows():
    rows = [torch.arange(size) + 100 * number for number, size in enumerate([2, 0, 3, 1])]
    column = Jagged.of(jagged_from_rows(rows))
    parts = column.cut([0, 1, 1, 4])
    assert [[row.tolist() for row in part.rows()] for part in parts] == [[[0, 1]], [], [[], [200, 201, 202], [300]]]
    assert parts[2].values.data_ptr() == column.values[2:].data_ptr()


def test_torch_says_nothing_about_tracing_and_may_say_everything_else(caplog):
    logger = logging.getLogger("torch.fx._symbolic_trace")
    with caplog.at_level(logging.WARNING, logger=logger.name):
        jagged_from_rows([torch.ones(2), torch.ones(3)])
        logger.warning("a graph was traced")
    assert [record.getMessage() for record in caplog.records] == ["a graph was traced"]
