r"""Which answers computer algebra may be asked about: those whose evaluation is known to end soon.

``9^{9^{9}}`` is nine characters and no computer will ever print it. A process with a deadline would survive it, at the price of
the deadline; an answer that is refused here is compared as a string instead, at no price.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from sympy import Function, MatrixBase, Pow, exp, factorial, preorder_traversal
from sympy.functions.combinatorial.factorials import factorial2, subfactorial

MAX_CHARS: Final = 400
MAX_DEPTH: Final = 16
"""Of brackets."""
MAX_NODES: Final = 200
MAX_DIGITS: Final = 3_000
"""Decimal digits of any number that comes up on the way."""
MAX_TERMS: Final = 120
"""Of an expanded power of a sum."""
MAX_FUNCTIONS: Final = 8
"""Sines, logarithms and the like, each counted as often as its power says."""
MAX_FACTORIAL: Final = 500
MAX_ROOT: Final = 100

_DIFFERENTIAL = r"\{\s*(?:\\mathrm\{)?d"
_OPERATORS = re.compile(
    r"\\(?:i*int|oint|sum|prod|lim|limsup|liminf|partial|bigcup|bigcap)(?![a-z])"
    rf"|\\[dt]?frac\s*{_DIFFERENTIAL}[^{{}}]*\}}+\s*{_DIFFERENTIAL}"
)
_BINOMIAL = re.compile(r"\\[dt]?binom(?![a-z])|\\choose(?![a-z])")
_LONG_NUMBER = re.compile(r"\d{4}")
_HUGE_FLOAT = re.compile(r"\d[eE][-+]?\d{4}")
_SIGNS = re.compile(r"[-+!]{6}")
_OPENING = "([{"
_CLOSING = ")]}"


def is_cheap_text(text: str) -> bool:
    """Whether parsing the answer is safe. Sums, products, limits, integrals and derivatives are not."""
    if len(text) > MAX_CHARS or any(pattern.search(text) for pattern in (_OPERATORS, _HUGE_FLOAT, _SIGNS)):
        return False
    if _BINOMIAL.search(text) and (_LONG_NUMBER.search(text) or "^" in text or "!" in text or len(text) > 100):
        return False
    depth = deepest = 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        deepest = max(deepest, depth)
    return deepest <= MAX_DEPTH


def is_cheap(expression: Any) -> bool:
    """Whether comparing the parsed answer is safe: few nodes, and no number of many digits in any of them."""
    parts = list(expression.flat()) if isinstance(expression, MatrixBase) else [expression]
    num_nodes = 0
    try:
        for part in parts:
            for node in preorder_traversal(part):
                num_nodes += 1
                if num_nodes > MAX_NODES:
                    return False
                if isinstance(node, MatrixBase):
                    parts.extend(node.flat())
            if _digits(part) > MAX_DIGITS or _num_functions(part) > MAX_FUNCTIONS or _num_terms(part) > MAX_TERMS:
                return False
    except RecursionError:
        return False
    return True


def _digits(node: Any) -> float:
    """A bound on the decimal digits of what the numbers in ``node`` can make; infinite where there is none."""
    if getattr(node, "is_Rational", False):
        return (int(node.p).bit_length() + int(node.q).bit_length()) * math.log10(2)
    if getattr(node, "is_Float", False):
        _, _, exponent, bits = node._mpf_
        return (abs(exponent) + bits) * math.log10(2)
    arguments: tuple[Any, ...] = getattr(node, "args", ())
    if isinstance(node, Pow | exp):
        base, exponent = node.as_base_exp()
        return _power_digits(base, exponent)
    if isinstance(node, factorial | factorial2 | subfactorial) and arguments[0].is_number:
        is_small = arguments[0].is_Integer and abs(arguments[0]) <= MAX_FACTORIAL
        return MAX_FACTORIAL * math.log10(MAX_FACTORIAL) if is_small else math.inf
    return sum(_digits(argument) + 1 for argument in arguments)


def _power_digits(base: Any, exponent: Any) -> float:
    size = _digits(exponent)
    if size > 5:
        return math.inf
    if getattr(exponent, "is_Rational", False):
        if exponent.q > MAX_ROOT:
            return math.inf
        power = abs(float(exponent))
    else:
        power = 10**size
    return max(_digits(base), 1) * max(power, 1)


def _num_functions(node: Any) -> float:
    arguments = getattr(node, "args", ())
    inside = sum(map(_num_functions, arguments))
    if isinstance(node, Pow) and inside:
        return inside * max(1.0, _size(node.exp))
    return inside + isinstance(node, Function)


def _num_terms(node: Any) -> float:
    """Summands of the expanded expression, at most."""
    arguments = getattr(node, "args", ())
    if isinstance(node, Pow):
        terms, power = _num_terms(node.base), _size(node.exp)
        if terms <= 1 or power <= 1:
            return terms
        if power * terms > MAX_TERMS:
            return math.inf
        return float(math.comb(int(terms) + math.ceil(power) - 1, math.ceil(power)))
    counts = [_num_terms(argument) for argument in arguments]
    if getattr(node, "is_Mul", False):
        return math.prod(counts)
    return max(1.0, math.fsum(counts) if getattr(node, "is_Add", False) else max(counts, default=1.0))


def _size(exponent: Any) -> float:
    """Of a number; anything else as an exponent expands nothing."""
    return abs(float(exponent)) if getattr(exponent, "is_Rational", False) else 1.0
