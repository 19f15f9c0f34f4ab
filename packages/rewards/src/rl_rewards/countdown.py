"""Countdown: an expression of the given numbers, each used once, whose value is the target.

The expression is read as a syntax tree and computed in fractions; nothing in it is executed. There are ``+ - * /``, brackets
and signs; a power is no expression of this game, so none is computed.
"""

from __future__ import annotations

import ast
import json
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

from rl_rewards.answers import find_answer, response_text, ways_of
from rl_rewards.errors import GroundTruthError
from rl_rewards.numbers import parse_number

MAX_CHARS: Final = 500
MAX_DEPTH: Final = 60

_OPERATIONS: Final[Mapping[type, Callable[[Fraction, Fraction], Fraction]]] = MappingProxyType(
    {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
)
_SPELLINGS: Final = str.maketrans(
    {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")", "{": "(", "}": ")"}
)


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    extract: str | Sequence[str] = ("tag", "boxed", "announced", "last_line"),
    use_all: bool = True,
    format_score: float = 0.0,
) -> float:
    """Check an expression.

    Args:
        data_source: not used.
        solution_str: the response.
        ground_truth: ``{"target": 15, "numbers": [3, 5]}``, or its JSON text; or the target alone, with the numbers in
            ``extra_info``.
        extra_info: its ``numbers`` or ``nums`` stand in for those of the ground truth.
        extract: where the expression is looked for; see ``rl_rewards.answers.find_answer``. ``= 15`` after it does no harm.
        use_all: every number must be used; else some may be left out.
        format_score: for an expression that can be read and is wrong.

    Returns:
        1.0, ``format_score``, or 0.0 where no expression can be read.

    Raises:
        GroundTruthError: the row has no target or no numbers.
        ValueError: ``extract`` is unknown.
    """
    target, numbers = read_puzzle(ground_truth, extra_info)
    tree = _expression(find_answer(response_text(solution_str), ways_of(extract)) or "")
    if tree is None:
        return 0.0
    used, given = Counter(_numbers(tree)), Counter(numbers)
    if used != given if use_all else used - given:
        return format_score
    try:
        return 1.0 if _value(tree) == target else format_score
    except ZeroDivisionError:
        return format_score


def read_puzzle(ground_truth: Any, extra_info: Mapping[str, Any] | None) -> tuple[Fraction, list[Fraction]]:
    """The target and the numbers.

    Raises:
        GroundTruthError: one of them is absent.
    """
    puzzle = ground_truth
    if isinstance(puzzle, str):
        try:
            puzzle = json.loads(puzzle)
        except ValueError:
            puzzle = {}
    if not isinstance(puzzle, Mapping):
        puzzle = {"target": puzzle}
    found = {**(extra_info or {}), **{key: value for key, value in puzzle.items() if value is not None}}
    numbers = found.get("numbers", found.get("nums"))
    target = parse_number(found.get("target"))
    values = [] if numbers is None else [parse_number(number) for number in numbers]
    if target is None or not values or None in values:
        msg = f"ground truth {ground_truth!r} has no target with numbers; it must be like {{'target': 15, 'numbers': [3, 5]}}"
        raise GroundTruthError(msg)
    return Fraction(target), [Fraction(value) for value in values if value is not None]


def _expression(text: str) -> ast.expr | None:
    """The syntax tree of what stands before the first ``=``; None for anything that is no sum or product of numbers."""
    text = text.replace("\\times", "*").replace("\\cdot", "*").replace("\\div", "/").translate(_SPELLINGS)
    text = text.strip(" \t`$.").partition("=")[0].strip()
    if not text or len(text) > MAX_CHARS or not text.isascii():
        return None
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return tree if _is_arithmetic(tree, 0) else None


def _is_arithmetic(node: ast.AST, depth: int) -> bool:
    if depth > MAX_DEPTH:
        return False
    match node:
        case ast.BinOp(left, op, right):
            return type(op) in _OPERATIONS and _is_arithmetic(left, depth + 1) and _is_arithmetic(right, depth + 1)
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
            return _is_arithmetic(operand, depth + 1)
        case ast.Constant(value):
            return type(value) is int or (type(value) is float and abs(value) < 1e15)
    return False


def _numbers(tree: ast.expr) -> Iterator[Fraction]:
    return (Fraction(str(node.value)) for node in ast.walk(tree) if isinstance(node, ast.Constant))


def _value(node: ast.expr) -> Fraction:
    """The value of a tree that ``_is_arithmetic`` has passed."""
    match node:
        case ast.BinOp(left, op, right):
            return _OPERATIONS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op, operand):
            return -_value(operand) if isinstance(op, ast.USub) else _value(operand)
        case ast.Constant(value):
            return Fraction(str(value))
    msg = f"{ast.dump(node)} is no arithmetic"
    raise AssertionError(msg)
