r"""Answers of the MATH data set as strings in one spelling: the second opinion beside computer algebra.

It decides what algebra cannot read (names, words, odd LaTeX) and what it would take too long over.

Source: Hendrycks et al. 2021, arXiv:2103.03874 (the idea that answers are equal if they are after normalisation; the rules here
are our own, and count braces).
"""

from __future__ import annotations

import re
from typing import Final

from rl_rewards.answers import closing_brace

_DROPPED: Final = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits|quad|qquad)(?![a-zA-Z])|\\[!,;: ]|[~$]|\\\$|\\?%|\s"
)
_DEGREES: Final = re.compile(r"\^\{?\\circ\}?|\\degrees?(?![a-zA-Z])|°")
_SPELLINGS: Final = (
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\(le|ge|ne)(?![a-zA-Z])"), r"\\\1q"),
    (re.compile(r"\\varnothing(?![a-zA-Z])"), r"\\emptyset"),
    (re.compile(r"\\(begin|end)\{[bBvVp]?matrix\}"), r"\\\1{matrix}"),
    (re.compile(r"\\(?:cdot|times)(?![a-zA-Z])|[·×]"), "*"),
    (re.compile("[−–]"), "-"),
    (re.compile(r"(?<!\\)\{([:;])\}"), r"\1"),
    (re.compile("∞"), r"\\infty"),
    (re.compile("π"), r"\\pi"),
    (re.compile("√"), r"\\sqrt"),
)
_TEXT: Final = re.compile(r"\\(?:text|textbf|textit|textrm|mbox|mathrm|mathbf|mathit|operatorname)\s*(?=\{)")
_BARE_FRACTION: Final = re.compile(r"\\frac(?:(\d)(\d)|(\d)(\{[^{}]*\})|(\{[^{}]*\})(\d))")
_BARE_ROOT: Final = re.compile(r"\\sqrt(\w)")
_SLASH: Final = re.compile(r"(-?)(\d+)/(\d+)")
_GAP: Final = "_ "
"""Between digits that spaces keep apart."""
_BETWEEN_DIGITS: Final = re.compile(r"(?<=\d)\s+(?=\d)")
_THOUSANDS: Final = re.compile(r"[-+]?\d{1,3}(?:(?:,|\{,\}|_ )\d{3})+(?:\.\d+)?")
_DECIMAL: Final = re.compile(r"(?<![\w.])\.(?=\d)")
_NAMED: Final = re.compile(r"[a-zA-Z](?:\([a-zA-Z]\))?=(?=[^=])")
_AFTER_NUMBER: Final = re.compile(r"[\d})]$")
_UNIT: Final = re.compile(r"(?!(?:and|or|a\.?m|p\.?m|bc|ad)\b)[^\d]+", re.IGNORECASE)
_UNIT_END: Final = re.compile(r"\s*(?:\^\{?[23]\}?)?\s*(?=[,.;)\]}$]|\\[})\]]|$)")
"""What may follow a unit: its power, and then nothing that it could belong to."""
_WORDS: Final = re.compile(r"[^\W\d_]{2,}(?:[-',.()]?[^\W\d_]+)*\.?")


def same_string(one: str, other: str) -> bool:
    """Whether two answers are one in spelling. Answers of which nothing is left are equal to none."""
    normal = normalise(one)
    return bool(normal) and normal == normalise(other)


def normalise(answer: str) -> str:
    """The answer without units, spacing, sizes, a ``x=`` before and a full stop after it, in one spelling of fractions.

    Words lose their case; single letters keep it.
    """
    text = unwrap_text(_DEGREES.sub("", answer)).strip()
    text = _GAP.join(_DROPPED.sub("", part) for part in _BETWEEN_DIGITS.split(text))
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    text = text.rstrip(".")
    text = _NAMED.sub("", text, count=1) if _NAMED.match(text) and text.count("=") == 1 else text
    if _THOUSANDS.fullmatch(text):
        text = text.replace("{,}", "").replace(",", "").replace(_GAP, "")
    text = _DECIMAL.sub("0.", text)
    text = _BARE_ROOT.sub(r"\\sqrt{\1}", _BARE_FRACTION.sub(_braced, text))
    text = _SLASH.sub(r"\1\\frac{\2}{\3}", text) if _SLASH.fullmatch(text) else text
    text = text[1:-1] if re.fullmatch(r"\([A-Za-z]\)", text) else text
    return text.casefold() if _WORDS.fullmatch(text) else text


def unwrap_text(answer: str) -> str:
    r"""Content of ``\text{...}`` and the like in place of the command; a unit, which stands after a number, is dropped."""
    out: list[str] = []
    position = 0
    for match in _TEXT.finditer(answer):
        end = closing_brace(answer, match.end())
        if match.start() < position or end is None:
            continue
        before = answer[position : match.start()]
        out.append(before)
        content = answer[match.end() + 1 : end]
        position = end + 1
        rest = _UNIT_END.match(answer, position)
        is_unit = rest and _AFTER_NUMBER.search("".join(out).rstrip("\\ ~")) and _UNIT.fullmatch(content.strip())
        if is_unit and rest:
            position = rest.end()
        out.append("" if is_unit else content)
    return "".join(out) + answer[position:]


def _braced(match: re.Match[str]) -> str:
    numerator, denominator = (part.strip("{}") for part in match.groups() if part is not None)
    return f"\\frac{{{numerator}}}{{{denominator}}}"
