import json

import numpy as np
import pytest
from rl_rewards.code_tests import TOLERANCE, TestCase, parse_problem, same_text, same_value


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        ("3\n", "3", True),
        ("3 \n\n", "3\n", True),
        ("1  2\n3", "1 2\n3\n", True),
        ("1 2 3", "1 2\n3", False),  # lines count
        ("1\n2", "1", False),
        ("", "", True),
        ("", "1", False),
        ("YES", "yes", False),
        ("0.5000001", "0.5", True),
        ("0.51", "0.5", False),
        ("1e-7", "0.0", True),
        ("1000000000001.0", "1000000000002.0", True),  # relative
        ("1000000007", "1000000008", False),  # whole numbers are exact
        ("1.0", "1", False),
        ("nan", "0.5", False),
        ("a.b", "a.c", False),
    ],
)
def test_texts(actual, expected, same):
    assert same_text(actual, expected) is same


def test_no_tolerance():
    assert not same_text("0.5000001", "0.5", 0.0)
    assert same_text("0.50", "0.5", 0.0)


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        (3, 3, True),
        (3, [3], True),
        ([3], [3], True),
        ([3], 3, False),
        ([[1, 2]], [1, 2], False),
        (0.30000000000000004, 0.3, True),
        (True, 1, False),
        (1, True, False),
        ({"1": [0.1]}, {1: (0.1,)}, True),
        ({"1": 2}, {1: 2, 2: 3}, False),
        ([1, 2], np.array([1, 2]), True),
        ("a", "a", True),
        (None, None, True),
        (None, 0, False),
        ([], [None], False),
    ],
)
def test_values(actual, expected, same):
    assert same_value(actual, expected) is same


def test_programs_that_read_stdin():
    problem = parse_problem(json.dumps({"inputs": ["1\n", ["2", "3"]], "outputs": ["a", ["b", "c"]]}))
    assert not problem.calls
    assert [(case.stdin, case.expected) for case in problem.cases] == [("1\n", "a"), ("2\n3", "b\nc")]
    assert problem.program("code") == "code"


def test_functions():
    problem = parse_problem({"fn_name": "f", "inputs": [[1, [2]], '1\n"x"'], "outputs": [3, "[4]"]})
    assert problem.calls
    assert [json.loads(case.stdin)["arguments"] for case in problem.cases] == [[1, [2]], [1, "x"]]
    assert [case.expected for case in problem.cases] == [3, [4]]
    assert not problem.cases[0].is_passed_by("no json", 0.0)
    assert not problem.cases[0].is_passed_by("[" * 100_000, 0.0)


def test_arrays_of_parquet():
    inputs = np.array([np.array([1, 2]), np.array([3, 4])], dtype=object)
    problem = parse_problem({"fn_name": "f", "inputs": inputs, "outputs": np.array([3, 7])})
    assert [case.expected for case in problem.cases] == [3, 7]
    assert json.loads(problem.cases[1].stdin)["arguments"] == [3, 4]


def test_expected_values_of_assertions_stay_outside():
    problem = parse_problem({"assert_case": ["assert f(2) == 'secret'", "assert f(1) != 3", "assert f(1) == {2}"]})
    first, second, third = (json.loads(case.stdin) for case in problem.cases)
    assert first == {"expression": "f(2)"}
    assert problem.cases[0].expected == "secret"
    assert second == {"statement": "assert f(1) != 3"}
    assert third == {"statement": "assert f(1) == {2}"}  # JSON has no sets


@pytest.mark.parametrize(
    "truth",
    ["not json", "3", {}, {"inputs": ["1"]}, {"inputs": ["1"], "outputs": []}, {"inputs": [], "outputs": []}, None],
)
def test_a_row_at_fault(truth):
    with pytest.raises(ValueError):
        parse_problem(truth)


def test_an_integer_that_no_float_holds_is_a_wrong_value():
    assert not TestCase("", 1.5, is_value=True).is_passed_by("1" + "0" * 400, TOLERANCE)
