"""Which answers a scorer of reasoning-gym may see, where it would run them.

Some of its scorers call ``eval`` on the answer of a response, or sympy's ``parse_expr``, which does: with all rights of the
process that scores. So an answer gets to them only if it is nothing but what was asked for: a sum, a formula, or a list.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

MAX_CHARS: Final = 1_000
MAX_POWER: Final = 200
"""Product of the exponents that stand inside each other."""

_SUM: Final = re.compile(r"[0-9\s+\-*/().]*", re.ASCII)
_WORDS: Final = re.compile(r"[\w\s-]*")
_LETTER: Final = re.compile(r"[A-Za-z]|pi", re.ASCII)
_FUNCTIONS: Final = frozenset(
    (
        "sin",
        "cos",
        "tan",
        "sec",
        "csc",
        "cot",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "exp",
        "log",
        "ln",
        "sqrt",
        "Abs",
        "erf",
        "Si",
        "Ci",
        "Ei",
        "li",
    )
)
_OPERATORS: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


def is_safe(name: str, answer: str, entry: Mapping[str, Any]) -> bool:
    """Whether the scorer of a data set may be given an answer. One that is refused is wrong.

    Args:
        name: of the data set.
        answer: of a response.
        entry: of the row.
    """
    check = EVALUATED.get(name)
    if check is None or answer.strip() == str(entry["answer"]).strip():
        return True
    return len(answer) <= MAX_CHARS and check(answer.strip(), entry["metadata"])


def _is_sum(answer: str, metadata: Mapping[str, Any]) -> bool:
    return _SUM.fullmatch(answer) is not None and "**" not in answer


def _is_sum_of_the_numbers(answer: str, metadata: Mapping[str, Any]) -> bool:
    """The scorer of puzzle24 takes any four numbers."""
    used, given = (Counter(map(int, found)) for found in (re.findall(r"\d+", answer), metadata.get("numbers", ())))
    return _is_sum(answer, metadata) and used == given


def _is_list(answer: str, metadata: Mapping[str, Any]) -> bool:
    """A literal; or words and numbers, which call nothing."""
    if _WORDS.fullmatch(answer):
        return True
    try:
        ast.literal_eval(answer)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _is_formula(answer: str, metadata: Mapping[str, Any]) -> bool:
    """Letters, numbers and known functions of them. No integral: as an answer it would be the question."""
    try:
        return _power(ast.parse(answer, mode="eval").body) <= MAX_POWER
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def _power(node: ast.expr) -> float:
    """The product of the exponents inside each other; infinite for anything that is no formula."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return 1.0
        case ast.Name(id=name) if _LETTER.fullmatch(name):
            return 1.0
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            return _power(operand)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return _power(argument)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(left) * _power(right) * _size(right)
        case ast.BinOp(left=left, op=operator, right=right) if isinstance(operator, _OPERATORS):
            return max(_power(left), _power(right))
    return math.inf


def _size(exponent: ast.expr) -> float:
    numbers = [node.value for node in ast.walk(exponent) if isinstance(node, ast.Constant)]
    return math.prod(max(1.0, min(n, MAX_POWER + 1)) for n in numbers if isinstance(n, int | float))


EVALUATED: Final[Mapping[str, Callable[[str, Mapping[str, Any]], bool]]] = MappingProxyType(
    {
        "countdown": _is_sum,
        "puzzle24": _is_sum_of_the_numbers,
        "simple_integration": _is_formula,
        "intermediate_integration": _is_formula,
        "polynomial_multiplication": _is_formula,
        "string_insertion": _is_list,
        "spiral_matrix": _is_list,
        "binary_matrix": _is_list,
        "n_queens": _is_list,
    }
)
"""Data sets whose scorers run answers -> what an answer must be."""
