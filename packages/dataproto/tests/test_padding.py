"""Rows added until a number divides."""

from __future__ import annotations

import pytest
from rl_dataproto import DataProtoTypeError, RowCountError, pad_dataproto_to_divisor, unpad_dataproto


@pytest.mark.parametrize(("rows", "divisor", "added"), [(5, 4, 3), (2, 7, 5), (4, 4, 0), (1, 3, 2), (6, 1, 0)])
def test_rows_are_taken_from_the_front_and_around_again(make_mixed, assert_rows, rows, divisor, added):
    data = make_mixed(rows)
    padded, pad_size = pad_dataproto_to_divisor(data, divisor)
    assert pad_size == added
    assert_rows(padded, data, [number % rows for number in range(rows + added)])
    assert unpad_dataproto(padded, pad_size).equals(data)


def test_no_rows_need_no_padding(make_mixed):
    empty = make_mixed(2)[:0]
    padded, pad_size = pad_dataproto_to_divisor(empty, 3)
    assert (padded is empty, pad_size) == (True, 0)


def test_padding_refuses(make_mixed):
    data = make_mixed(2)
    with pytest.raises(RowCountError, match="multiple of 0"):
        pad_dataproto_to_divisor(data, 0)
    with pytest.raises(DataProtoTypeError, match="a list"):
        pad_dataproto_to_divisor([1], 2)
    for size in (-1, 3):
        with pytest.raises(RowCountError, match=f"{size} padding rows.*2 rows"):
            unpad_dataproto(data, size)
