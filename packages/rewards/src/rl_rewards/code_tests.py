"""Test cases of programming problems, as data sets write them, and the comparison of what a program gave.

A ground truth is a dict, or its JSON text, of one of three kinds:

* ``{"inputs": [...], "outputs": [...]}``: a program that reads stdin and writes stdout;
* the same with ``"fn_name"``: a function, or a method of a class ``Solution``; an input is the list of arguments, or text with
  one JSON value a line; an output is the value, or its JSON text;
* ``{"assert_case": ["assert f(1) == 2", ...]}``.

Expected values stay outside of the sandbox, so that code cannot look them up. An assertion that compares something with a
literal is taken apart for that; any other one has to run beside the code.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-6

_CALLER = """\
import json as _json, os as _os, sys as _sys
_answers = _os.fdopen(_os.dup(1), "w")
_os.dup2(2, 1)  # what the code prints is no answer
_question = _json.loads(_sys.stdin.read())


def _plain(value):
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=lambda item: (str(type(item)), item))
    return value.item() if hasattr(value, "item") else str(value)


_names = {"__name__": "answer"}
exec("from typing import *\\nimport collections, functools, heapq, itertools, math, re, string, bisect\\n"
     "from collections import *\\nfrom functools import *\\nfrom heapq import *\\nfrom itertools import *\\n"
     "from bisect import *\\nfrom math import *", _names)
exec(compile(%CODE%, "answer.py", "exec"), _names)
if "function" in _question:
    _owner = _names.get("Solution")
    _function = getattr(_owner(), _question["function"]) if _owner else _names[_question["function"]]
    _value = _function(*_question["arguments"])
elif "expression" in _question:
    _value = eval(_question["expression"], _names)
else:
    exec(_question["statement"], _names)
    _value = True
_json.dump(_value, _answers, default=_plain)
_answers.close()
"""


@dataclass(frozen=True, slots=True)
class TestCase:
    """One test.

    Attributes:
        stdin: what the program reads.
        expected: text on stdout, or a value as JSON has it.
        is_value: whether it is a value.
    """

    __test__ = False  # not for pytest

    stdin: str
    expected: Any
    is_value: bool

    def is_passed_by(self, stdout: str, tolerance: float) -> bool:
        """Whether a program that wrote ``stdout`` has passed."""
        if not self.is_value:
            return same_text(stdout, self.expected, tolerance)
        try:
            return same_value(json.loads(stdout), self.expected, tolerance)
        except (ValueError, RecursionError, OverflowError):  # the last: an integer that no float holds
            return False


@dataclass(frozen=True, slots=True)
class Problem:
    """The test cases of a row.

    Attributes:
        cases: at least one.
        calls: whether the code is called, instead of being the program.
    """

    cases: Sequence[TestCase]
    calls: bool

    def program(self, code: str) -> str:
        """What to run for the code of a response."""
        return _CALLER.replace("%CODE%", repr(code)) if self.calls else code


def parse_problem(ground_truth: Any) -> Problem:
    """The test cases of a ground truth.

    Raises:
        ValueError: they cannot be read: the row is at fault, not the response.
    """
    data = json.loads(ground_truth) if isinstance(ground_truth, str | bytes) else ground_truth
    if not isinstance(data, Mapping):
        msg = f"the ground truth of a code row is a {type(data).__name__}; it must be a dict with inputs and outputs"
        raise ValueError(msg)
    assertions = data.get("assert_case")
    if assertions is not None and len(assertions):
        return Problem([_assertion(text) for text in assertions], calls=True)
    inputs, outputs = data.get("inputs"), data.get("outputs")
    if inputs is None or outputs is None or len(inputs) != len(outputs) or len(inputs) == 0:
        told = {
            name: "none" if value is None else len(value) for name, value in (("inputs", inputs), ("outputs", outputs))
        }
        msg = f"the ground truth of a code row has {told}; it must have as many outputs as inputs, and at least one"
        raise ValueError(msg)
    name = data.get("fn_name")
    pairs = zip(inputs, outputs, strict=True)
    if name:
        return Problem([_call(str(name), given, expected) for given, expected in pairs], calls=True)
    return Problem([TestCase(_text(given), _text(expected), is_value=False) for given, expected in pairs], calls=False)


def _text(value: Any) -> str:
    """Lines may be written as a list."""
    return value if isinstance(value, str) else "\n".join(map(str, value))


def _call(name: str, given: Any, expected: Any) -> TestCase:
    lines = [line for line in given.splitlines() if line.strip()] if isinstance(given, str) else None
    arguments = list(given) if lines is None else [json.loads(line) for line in lines]
    expected = json.loads(expected) if isinstance(expected, str) else expected
    return TestCase(json.dumps({"function": name, "arguments": arguments}, default=_listed), expected, is_value=True)


def _listed(value: Any) -> Any:
    return value.tolist()  # arrays, as parquet gives them


def _assertion(text: str) -> TestCase:
    tree = ast.parse(text.strip())
    statement = tree.body[0] if len(tree.body) == 1 else None
    if isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Compare):
        comparison = statement.test
        if len(comparison.ops) == 1 and isinstance(comparison.ops[0], ast.Eq):
            try:
                expected = json.loads(json.dumps(ast.literal_eval(comparison.comparators[0])))
            except (ValueError, TypeError):
                pass  # no literal, or one that JSON does not have: a set, say
            else:
                return TestCase(json.dumps({"expression": ast.unparse(comparison.left)}), expected, is_value=True)
    return TestCase(json.dumps({"statement": text}), True, is_value=True)


def same_text(actual: str, expected: str, tolerance: float = TOLERANCE) -> bool:
    """Whether two outputs are the same, line by line and word by word.

    Blank lines, and how much space stands between words, do not count. A word that is expected to be a decimal fraction may
    differ by ``tolerance``, absolute or relative; whole numbers and everything else may not differ.
    """
    lines, wanted = ([line.split() for line in text.splitlines() if line.strip()] for text in (actual, expected))
    return len(lines) == len(wanted) and all(
        len(words) == len(others) and all(_same_word(*pair, tolerance) for pair in zip(words, others, strict=True))
        for words, others in zip(lines, wanted, strict=True)
    )


def _same_word(actual: str, expected: str, tolerance: float) -> bool:
    if actual == expected:
        return True
    if "." not in expected:
        return False
    try:
        return math.isclose(float(actual), float(expected), rel_tol=tolerance, abs_tol=tolerance)
    except ValueError:
        return False


def same_value(actual: Any, expected: Any, tolerance: float = TOLERANCE) -> bool:
    """Whether two values are the same, as JSON has them; ``tolerance`` is for expected floats.

    Some data sets wrap a result in a list of one; that is understood.
    """
    if _same(actual, expected, tolerance):
        return True
    return isinstance(expected, list) and len(expected) == 1 and _same(actual, expected[0], tolerance)


def _same(actual: Any, expected: Any, tolerance: float) -> bool:
    expected = expected.tolist() if hasattr(expected, "tolist") else expected
    if isinstance(expected, list | tuple):
        return (
            isinstance(actual, list)
            and len(actual) == len(expected)
            and all(_same(*pair, tolerance) for pair in zip(actual, expected, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and actual.keys() == {str(key) for key in expected}
            and all(_same(actual[str(key)], value, tolerance) for key, value in expected.items())
        )
    if isinstance(expected, float) and isinstance(actual, int | float) and not isinstance(actual, bool):
        return math.isclose(actual, expected, rel_tol=tolerance, abs_tol=tolerance)
    return bool(actual == expected) and isinstance(actual, bool) == isinstance(expected, bool)
