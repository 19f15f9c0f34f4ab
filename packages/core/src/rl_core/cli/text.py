"""What subcommands print with: tables that fit a narrow terminal, and the refusal of a mistyped word."""

from __future__ import annotations

import difflib
import textwrap
from typing import TYPE_CHECKING, Final

from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = 80
_INDENT: Final = "  "
_MIN_LAST: Final = 24


def format_table(rows: Sequence[Sequence[str]], header: Sequence[str] | None = None, *, width: int = WIDTH) -> str:
    """Lay out rows in columns two spaces apart; the last column wraps to what is left of ``width``.

    Where less than 24 characters are left for it, the last column goes on lines of its own beneath its row.
    """
    lines = [list(header), *map(list, rows)] if header else [list(row) for row in rows]
    if not lines:
        return ""
    columns = [max(len(row[column]) for row in lines) for column in range(len(lines[0]) - 1)]
    used = sum(columns) + len(_INDENT) * (len(columns) + 1)
    beneath = width - used < _MIN_LAST and max(len(row[-1]) for row in lines) > width - used
    out: list[str] = []
    for row in lines:
        left = _INDENT + "".join(cell.ljust(size) + _INDENT for cell, size in zip(row[:-1], columns, strict=True))
        if beneath and row[-1]:
            out.append(left.rstrip())
            out.extend(_wrap(row[-1], width, _INDENT * 3))
        else:
            first, *more = _wrap(row[-1], width, " " * used) or [""]
            out.append((left + first[used:]).rstrip())
            out.extend(more)
    return "\n".join(out)


def require_choice(what: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a word that is none of ``choices``, with the closest ones.

    Raises:
        ConfigError: ``value`` is not among them.
    """
    if value in choices:
        return
    close = difflib.get_close_matches(value, choices, n=3)
    guess = f"  Did you mean: {', '.join(close)}?\n" if close else ""
    msg = f"{what} does not know {value!r}.\n{guess}  It takes one of: {', '.join(choices)}."
    raise ConfigError(msg)


def _wrap(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
