from __future__ import annotations

import io

import pytest
from rl_core.cli.paint import OFF, ON, Paint, cleaned

PLAIN, COLORED = Paint(is_colored=False), Paint(is_colored=True)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "choice", "no_color", "expected"),
    [
        (Terminal(), "auto", "", True),
        (Terminal(), "auto", "1", False),
        (io.StringIO(), "auto", "", False),
        (io.StringIO(), "always", "1", True),
        (Terminal(), "never", "", False),
    ],
)
def test_when_text_is_colored(monkeypatch, stream, choice, no_color, expected):
    monkeypatch.setenv("NO_COLOR", no_color)
    assert Paint.of(stream, choice).is_colored is expected


def test_a_stream_without_block_characters_gets_plain_bars():
    assert Paint.of(Terminal(), "auto").bar == "█"
    assert Paint.of(io.TextIOWrapper(io.BytesIO(), encoding="ascii"), "auto").bar == "#"


def test_styles():
    assert PLAIN("red", "x") == "x"
    assert COLORED("red", "x") == "\x1b[31mx\x1b[0m"
    assert COLORED("red", "") == ""


def test_lines_are_wrapped_at_words_and_long_words_anywhere():
    assert PLAIN.wrapped("one two three", 9, "  ") == ["  one two", "  three"]
    assert PLAIN.wrapped("abcdefghij k", 6, "  ") == ["  abcd", "  efgh", "  ij k"]
    assert PLAIN.wrapped("a\n\nb", 9, "") == ["a", "", "b"]


def test_learned_text_is_marked_or_colored_over_line_ends():
    text = f"q {ON}yes and\nno{OFF} x"
    assert PLAIN.wrapped(text, 40, "") == ["q «yes and", "no» x"]
    assert COLORED.wrapped(text, 40, "") == ["q \x1b[32myes and\x1b[0m", "\x1b[32mno\x1b[0m x"]


def test_colors_take_no_room():
    text = f"{ON}abcd{OFF} {ON}efgh{OFF}"
    assert len(COLORED.wrapped(text, 9, "")) == 1
    assert len(PLAIN.wrapped(text, 9, "")) == 2


def test_control_characters_are_written_out():
    assert cleaned(f"a\x1b\r\t\n{ON}é") == "a\\x1b\\r\\t\n\\ue000é"
