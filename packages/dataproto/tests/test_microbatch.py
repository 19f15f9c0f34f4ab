"""Packing by token budget, and outputs back in input order."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_dataproto import (
    PADDING_ROW,
    DataProto,
    DataProtoTypeError,
    EmptyConcatError,
    RowCountError,
    jagged_from_rows,
    restore_order,
    token_budget_micro_batches,
)

LENGTHS = [7, 2, 5, 3, 6, 1]


def test_B12_outputs_come_back_in_input_order():
    rows = jagged_from_rows([torch.full((n,), i + 1) for i, n in enumerate(LENGTHS)])
    data = DataProto.from_dict({"tokens": rows}, {"uid": list("abcdef")})
    batches = token_budget_micro_batches(LENGTHS, max_tokens=8)
    assert sorted(map(sorted, batches)) == [[0, 5], [1, 4], [2, 3]]
    assert all(sum(LENGTHS[row] for row in batch) <= 8 for batch in batches)
    assert sum(LENGTHS[row] for batch in batches for row in batch) == 24
    batches = [*batches, [PADDING_ROW]]  # a micro-batch that another rank's count made necessary
    outputs = [
        torch.tensor([int(row.sum()) for row in data[batch].batch["tokens"].unbind()])
        if batch != [PADDING_ROW]
        else torch.tensor([99])
        for batch in batches
    ]
    assert restore_order(outputs, batches).tolist() == [7, 4, 15, 12, 30, 6]
    assert restore_order([data[batch] for batch in batches[:3]], batches[:3]).equals(data)


def test_B12_a_sample_over_the_budget_stands_alone():
    batches = token_budget_micro_batches([9, 2, 8, 9, 6], max_tokens=8)
    assert batches == [[0], [1, 4], [2], [3]]


def test_no_rows_make_no_batches():
    assert token_budget_micro_batches([], 8) == []
    assert token_budget_micro_batches([], 8, min_batches=2) == [[PADDING_ROW], [PADDING_ROW]]
    assert token_budget_micro_batches([0, 0], 8) == [[0, 1]]


def test_more_batches_than_needed_for_ranks_that_step_together():
    assert token_budget_micro_batches([4, 4, 1, 1], 10, min_batches=2) == [[0, 2], [1, 3]]
    assert token_budget_micro_batches([4, 4], 10, min_batches=4) == [[0], [1], [PADDING_ROW], [PADDING_ROW]]


@pytest.mark.parametrize(("lengths", "budget", "least"), [([1], 0, 1), ([-1], 8, 1), ([1], 8, -1)])
def test_numbers_are_checked(lengths, budget, least):
    with pytest.raises(RowCountError, match=f"max_tokens={budget}, min_batches={least}"):
        token_budget_micro_batches(lengths, budget, least)


@given(st.lists(st.integers(0, 40), max_size=40), st.integers(1, 30), st.integers(1, 6))
def test_every_row_is_packed_once_within_the_budget(lengths, budget, least):
    batches = token_budget_micro_batches(torch.tensor(lengths, dtype=torch.int64), budget, least)
    assert len(batches) >= least
    real = [batch for batch in batches if batch != [PADDING_ROW]]
    assert sorted(row for batch in real for row in batch) == list(range(len(lengths)))
    assert all(batch == sorted(batch) for batch in real)
    assert all(len(batch) == 1 or sum(lengths[row] for row in batch) <= budget for batch in real)
    assert batches == token_budget_micro_batches(np.array(lengths, dtype=np.int64), budget, least)
    fewest = max(least, math.ceil(sum(min(length, budget) for length in lengths) / budget))
    assert len(batches) <= max(least, 11 / 9 * max(fewest, sum(2 * length > budget for length in lengths)) + 4)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(9, 20))
def test_restoring_is_the_inverse_of_packing(lengths, budget):
    batches = token_budget_micro_batches(lengths, budget, min_batches=3)
    outputs = [[f"row {row}" for row in batch] for batch in batches]
    assert restore_order(outputs, batches) == [f"row {row}" for row in range(len(lengths))]


def test_every_kind_of_output(make_mixed):
    batches = [[2, 0], [PADDING_ROW], [1]]
    jagged = [jagged_from_rows([torch.arange(n) for n in rows]) for rows in ([3, 1], [5], [2])]
    assert [row.tolist() for row in restore_order(jagged, batches).unbind()] == [[0], [0, 1], [0, 1, 2]]
    arrays = [np.array(["c", "a"], object), np.array(["pad"], object), np.array(["b"], object)]
    assert restore_order(arrays, batches).tolist() == ["a", "b", "c"]
    data = make_mixed(3)
    assert restore_order([data[[2, 0]], data[:1], data[1:2]], batches).equals(data)


@pytest.mark.parametrize(
    ("pieces", "indices", "error", "words"),
    [
        ([], [], EmptyConcatError, "no piece"),
        ([[1, 2]], [[0]], RowCountError, r"\[2\] rows were given for micro-batches of \[1\]"),
        ([[1]], [[0], [1]], RowCountError, r"\[1\] rows"),
        ([[1, 2]], [[0, 0]], RowCountError, "each of 0 to 1"),
        ([[1, 2]], [[0, 2]], RowCountError, r"\[0, 2\]"),
        ([{"a": 1}], [[0]], DataProtoTypeError, "a piece of type dict"),
    ],
)
def test_restoring_refuses(pieces, indices, error, words):
    with pytest.raises(error, match=words):
        restore_order(pieces, indices)
