"""Decimal numbers as people and models write them."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

from rl_rewards.errors import GroundTruthError

NUMBER = re.compile(r"[-+]?\s?[$€£]?\s?[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)")
"""A sign and a currency sign in either order, digits with thousands commas, a decimal part."""

SCIENTIFIC = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d{1,4}")
"""What ``str`` makes of very large and very small floats."""

MAX_DIGITS = 400
"""A longer run of digits is no answer to a problem, and its arithmetic would only cost time."""


def parse_number(text: Any) -> Decimal | None:
    """The value of ``text``, or None if it is not one number.

    Accepts strings, ints, floats and numpy numbers; ignores thousands commas, a currency sign and a final full stop.
    """
    if isinstance(text, str) and len(text) > 2 * MAX_DIGITS:
        return None
    written = str(text).strip().rstrip(".")
    if len(written) > MAX_DIGITS:
        return None
    if SCIENTIFIC.fullmatch(written):
        return Decimal(written)
    if NUMBER.fullmatch(written) is None:
        return None
    try:
        return Decimal(re.sub(r"[,\s$€£]", "", written))
    except InvalidOperation:
        return None  # "--3" and the like: two signs


def gold_number(ground_truth: Any) -> Decimal:
    """The right number of a row.

    Raises:
        GroundTruthError: the row has none.
    """
    right = None if isinstance(ground_truth, bool) else parse_number(ground_truth)
    if right is None:
        msg = f"ground truth {ground_truth!r} is not a number; the row needs one in reward_model.ground_truth"
        raise GroundTruthError(msg)
    return right


def last_number(text: str) -> str:
    """The last number of a text as written; empty when there is none."""
    last = ""
    for match in NUMBER.finditer(text):
        last = match.group()
    return last
