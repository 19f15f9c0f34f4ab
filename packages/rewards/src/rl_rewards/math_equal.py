"""Whether two mathematical answers are the same: as strings, as numbers, and by computer algebra (math-verify).

The algebra runs without its own deadline, which needs a signal and so the main thread. What it is asked is bounded instead
(``rl_rewards.math_cost``), and the process that scores has a deadline that kills.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import math_verify.grader
import math_verify.parser
from math_verify import LatexExtractionConfig, parse, verify

from rl_rewards.errors import GraderError
from rl_rewards.math_cost import is_cheap, is_cheap_text
from rl_rewards.math_strings import normalise, same_string
from rl_rewards.math_units import different_units
from rl_rewards.numbers import parse_number

# The library warns once that it has no deadline; here it has one, that of the process.
math_verify.parser.TIMEOUT_WARNING_SHOWN = True
math_verify.grader.TIMEOUT_WARNING_SHOWN = True

_LATEX: Final = (LatexExtractionConfig(boxed_match_priority=-1),)
_PERCENT: Final = "%"


def same_answer(gold: str, answer: str) -> bool:
    """Whether an answer is the right one.

    Args:
        gold: the right answer, LaTeX or text, without a box.
        answer: the same of a response. Never raises for any text here.

    Raises:
        GraderError: computer algebra fails on the right answer itself.
    """
    if different_units(gold, answer):
        return False
    if same_string(gold, answer):
        return True
    values = _values(gold), _values(answer)
    if all(values):
        return bool(values[0] & values[1])
    return _same_expression(gold, answer)


def _values(text: str) -> frozenset[Decimal]:
    """The number that a text is; with a percent sign, also its hundredth. Empty if it is not one number."""
    normal = normalise(text)
    number = None if "," in normal else parse_number(normal)  # 1,2 is a list; of 1,234 no comma is left
    if number is None:
        return frozenset()
    return frozenset({number, number / 100} if _PERCENT in text else {number})


def _same_expression(gold: str, answer: str) -> bool:
    if not (is_cheap_text(gold) and is_cheap_text(answer)):
        return False
    right, given = _parsed(gold), _parsed(answer)
    if not (right and given and all(map(is_cheap, (*right, *given)))):
        return False
    try:
        return bool(verify(right, given, allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True))
    except Exception as error:
        _require_sane(right, gold, error)
        return False


def _parsed(text: str) -> list[Any]:
    """The expression that a text is; empty if it is none."""
    bare = text.replace("\\$", "").replace("$", "").strip()
    parsed: list[Any] = parse(f"${bare}$", _LATEX, fallback_mode="no_fallback", parsing_timeout=None)
    return parsed


def _require_sane(right: list[Any], gold: str, cause: Exception) -> None:
    """An answer may be too odd to be compared, and is wrong then; a right answer that is not equal to itself is no judge."""
    try:
        if verify(right, right, timeout_seconds=None, raise_on_error=True):
            return
    except Exception as error:
        cause = error
    msg = f"computer algebra cannot compare the right answer {gold!r} with itself: {type(cause).__name__}: {cause}"
    raise GraderError(msg) from cause
