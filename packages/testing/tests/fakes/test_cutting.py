from __future__ import annotations

import pytest
from rl_core.errors import ConfigError, DataError
from rl_testing.fakes.cutting import cut_rows, cut_units


@pytest.mark.parametrize(
    ("size", "budget", "expected"),
    [
        (None, None, [[0, 1, 2, 3]]),
        (2, None, [[0, 1], [2, 3]]),
        (3, 5, [[0, 1, 2], [3]]),
        (None, 6, [[0, 3], [1, 2]]),
        (None, 1, [[0], [1], [2], [3]]),
    ],
)
def test_rows_are_cut_by_number_or_by_tokens(size, budget, expected):
    assert cut_rows([4, 5, 1, 2], size, budget) == expected


def test_no_rows_make_no_micro_batch():
    assert cut_rows([], 2, None) == cut_rows([], None, 5) == cut_rows([], None, None) == []


@pytest.mark.parametrize(("size", "budget"), [(0, None), (None, 0), (-1, None)])
def test_limits_below_one_are_refused(size, budget):
    with pytest.raises(ConfigError, match="at least one row and one token"):
        cut_rows([1], size, budget)


@pytest.mark.parametrize(
    ("size", "budget", "expected"),
    [
        (None, None, [[0, 1, 2, 3, 4, 5]]),
        (1, None, [[0, 1], [2, 3], [4, 5]]),
        (5, None, [[0, 1, 2, 3], [4, 5]]),
        (None, 1, [[0, 1], [2, 3], [4, 5]]),
        (None, 9, [[0, 1], [2, 3, 4, 5]]),
    ],
)
def test_units_are_cut_whole(size, budget, expected):
    assert sorted(cut_units([4, 5, 1, 2, 3, 3], size, budget, 2)) == expected


def test_units_that_are_not_whole_and_limits_below_one_are_refused():
    with pytest.raises(DataError, match="5 rows are not whole units of 2"):
        cut_units([1] * 5, 2, None, 2)
    with pytest.raises(ConfigError, match="at least one row"):
        cut_units([1] * 4, 0, None, 2)
