"""Units of measure after a number: 5 cm is not 5 m, though both are 5 to a grader that drops units."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

from rl_rewards.answers import MAX_LINE

_SPELLINGS: Final = {
    "mm": "mm millimeter millimetre",
    "cm": "cm centimeter centimetre",
    "m": "m meter metre",
    "km": "km kilometer kilometre",
    "in": "in inch inche",
    "ft": "ft foot feet",
    "yd": "yd yard",
    "mi": "mi mile",
    "mg": "mg milligram",
    "g": "g gram",
    "kg": "kg kilogram",
    "lb": "lb pound",
    "s": "s sec second",
    "min": "min minute",
    "h": "h hr hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "year yr",
    "cent": "cent",
    "dollar": "dollar",
    "degree": "degree",
    "radian": "rad radian",
    "mph": "mph",
    "l": "l liter litre",
    "ml": "ml milliliter millilitre",
}
UNITS: Final = MappingProxyType({name: unit for unit, names in _SPELLINGS.items() for name in names.split()})
"""Spelling, without a plural s -> unit."""

_TRAILING: Final = re.compile(
    r"\d[\d,.]*\}*(?:\s|~|\\[ ,;!])*(?:\\(?:text|mathrm|mbox|textrm|rm)\s*\{)?(?:\s|~|\\[ ,;!])*([A-Za-z]{1,12})\.?\s*\}?"
    r"(?:\s*\^?\s*\{?([23])\}?)?\s*\$?\.?\s*$"
)


def different_units(one: str, other: str) -> bool:
    """Whether both answers end in a known unit, and not in the same one."""
    units = unit_of(one), unit_of(other)
    if (units[0] is None) != (units[1] is None):  # beside 5 cm, the m of 5 m is no variable
        units = unit_of(one, is_letter_unit=True), unit_of(other, is_letter_unit=True)
    return None not in units and units[0] != units[1]


def unit_of(answer: str, *, is_letter_unit: bool = False) -> tuple[str, str] | None:
    r"""The unit after a number and its power; None if there is none that is known.

    Args:
        answer: LaTeX or text.
        is_letter_unit: a single letter may be one without ``\text`` too; else it is a variable.
    """
    if len(answer) > MAX_LINE:
        return None
    match = _TRAILING.search(answer)
    if match is None:
        return None
    word = match.group(1)
    lower = word.lower()
    unit = UNITS.get(lower) or UNITS.get(lower.removesuffix("s"))
    is_bare_letter = len(word) == 1 and "\\" not in match.group()[:-1].replace("\\ ", "")
    if unit is None or (is_bare_letter and not is_letter_unit):
        return None
    return unit, match.group(2) or "1"
