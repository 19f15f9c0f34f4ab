"""Numbers, names and amounts as a reader wants them."""

from __future__ import annotations

import unicodedata
from typing import Any, Final

_DIRECTIONS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """The text without what could steer a terminal, turn a line around or break a file.

    Models write anything: control characters, halves of surrogate pairs and marks of writing direction become U+FFFD. Line
    ends and tabs stay.
    """
    return "".join(char if char in "\n\t" or not _steers(char) else "\ufffd" for char in text)


def _steers(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cs") or char in _DIRECTIONS


def number(value: float | None) -> str:
    """Four significant digits, without a trailing zero."""
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.4g}"


def short(value: float) -> str:
    """Three significant digits, for sentences."""
    return number(float(f"{value:.3g}"))


def duration(seconds: float) -> str:
    """Seconds as people say them: 3.1 ms, 420 ms, 12.3 s, 4 min 10 s, 2 h 5 min."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 or not seconds else f"{seconds * 1000:.1f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def percent(share: float) -> str:
    """A share of one."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def gib(value: float) -> str:
    """GiB, or MiB where that reads better."""
    return f"{value:.2f} GiB" if value >= 0.9995 else f"{value * 1024:.0f} MiB"


def plain(value: Any) -> str:
    """A value of any kind in a line of a report."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return printable(str(value))


def count(amount: int, what: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{amount} {what}" if amount == 1 else f"{amount} {what}s"
