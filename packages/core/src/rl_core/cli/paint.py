"""Colours for a terminal, and marks in their place everywhere else."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final, TextIO

_CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "cyan": "36"}
ON, OFF = "\ue000", "\ue001"
"""Stand around what is learned until the text is wrapped; both are from the range that no text uses."""


@dataclass(frozen=True)
class Paint:
    """How text is dressed.

    Attributes:
        is_colored: with escape sequences; otherwise marks stand around what is learned.
        bar: the character that bars of a histogram are made of.
    """

    is_colored: bool
    bar: str = "#"

    @classmethod
    def of(cls, stream: TextIO, choice: str) -> Paint:
        """For a stream: ``auto`` colours a terminal unless ``NO_COLOR`` is set."""
        is_colored = choice == "always" or (choice == "auto" and stream.isatty() and not os.environ.get("NO_COLOR"))
        has_blocks = "utf" in (getattr(stream, "encoding", None) or "").lower()
        return cls(is_colored, "█" if has_blocks else "#")

    def __call__(self, style: str, text: str) -> str:
        """``text`` in a style: ``bold``, ``dim``, ``red``, ``green`` or ``cyan``."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.is_colored and text else text

    def wrapped(self, text: str, width: int, indent: str) -> list[str]:
        """Lines of at most ``width`` characters, with what stands between ``ON`` and ``OFF`` dressed as learned."""
        lines = [line for raw in text.split("\n") for line in self._wrap_line(raw, width - len(indent))]
        out, is_on = [], False
        for line in lines:
            dressed, is_on = self._dressed(line, is_on)
            out.append((indent + dressed).rstrip())
        return out

    def _wrap_line(self, line: str, width: int) -> list[str]:
        lines, current = [], ""
        for word in re.findall(r"\s+|\S+", line):
            while self._width(current + word.rstrip()) > width:
                if current.strip():
                    lines.append(current)
                    current = ""
                    word = word.lstrip()
                else:
                    lines.append(current + word[:width])
                    current, word = "", word[width:]
            current += word
        return [*lines, current]

    def _width(self, text: str) -> int:
        return len(text) - (text.count(ON) + text.count(OFF) if self.is_colored else 0)

    def _dressed(self, line: str, is_on: bool) -> tuple[str, bool]:
        if not self.is_colored:
            return line.replace(ON, "«").replace(OFF, "»"), False
        ends_on = is_on if max(line.rfind(ON), line.rfind(OFF)) < 0 else line.rfind(ON) > line.rfind(OFF)
        start, stop = "\x1b[32m", "\x1b[0m"
        text = (start if is_on else "") + line.replace(ON, start).replace(OFF, stop)
        return text + (stop if ends_on else ""), ends_on


def cleaned(text: str) -> str:
    """``text`` in which what a terminal would obey, not show, is written out; line ends stay."""
    return "".join(
        character
        if character == "\n" or (character.isprintable() and character not in (ON, OFF))
        else repr(character)[1:-1]
        for character in text
    )
