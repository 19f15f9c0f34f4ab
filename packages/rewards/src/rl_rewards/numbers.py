"""Decimal numbers as people and models write them."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any

NUMBER = re.compile(r"[-+]?\s?[$€£]?\s?[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)")
"""A sign and a currency sign in either order, digits with thousands commas, a decimal part."""

MAX_DIGITS = 400
"""A longer run of digits is no answer to a problem, and its arithmetic would only cost time."""


def parse_number(text: Any) -> Decimal | None:
    """The value of ``text``, or None if it is not one number.

    Accepts strings, ints, floats and numpy numbers; ignores thousands commas, a currency sign and a final full stop.
    """
    written = str(text).strip().rstrip(".")
    match = NUMBER.fullmatch(written)
    if match is None or len(written) > MAX_DIGITS:
        return None
    try:
        return Decimal(re.sub(r"[,\s$€£]", "", written))
    except InvalidOperation:
        return None  # "--3" and the like: two signs
