from __future__ import annotations

import pytest
from rl_core.cli.text import format_table, require_choice
from rl_core.errors import ConfigError


def test_columns_are_aligned():
    assert format_table([["a", "bb", "c"], ["aaa", "b", "cc"]], ["X", "Y", "Z"]).splitlines() == [
        "  X    Y   Z",
        "  a    bb  c",
        "  aaa  b   cc",
    ]


def test_the_last_column_wraps_under_itself():
    lines = format_table([["name", "one two three four five six seven"], ["n", "short"]], width=34).splitlines()
    assert lines == ["  name  one two three four five", "        six seven", "  n     short"]


def test_a_last_column_without_room_goes_beneath():
    lines = format_table([["x" * 20, "one two three four five"], ["y", ""]], width=30).splitlines()
    assert lines == [f"  {'x' * 20}", "      one two three four five", "  y"]


def test_long_rows_stay_within_the_width():
    text = format_table([["a" * 30, "b" * 10, "word " * 60], ["c", "d", "ok"]])
    assert max(map(len, text.splitlines())) <= 80


def test_no_rows():
    assert format_table([]) == ""


def test_require_choice():
    require_choice("rl x", "list", ["list", "check"])
    with pytest.raises(ConfigError) as caught:
        require_choice("rl x", "lst", ["list", "check"])
    assert str(caught.value).splitlines() == [
        "rl x does not know 'lst'.",
        "  Did you mean: list?",
        "  It takes one of: list, check.",
    ]
