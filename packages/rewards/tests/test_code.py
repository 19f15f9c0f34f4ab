import json

import pytest
from rl_core.plugins import Registry
from rl_core.plugins.selection import Selection
from rl_rewards.code import compute_score
from rl_rewards.sandbox import SandboxError

pytestmark = [pytest.mark.heavy, pytest.mark.sandbox]

SUMS = json.dumps({"inputs": ["1 2\n", "3 4\n", "5 5\n"], "outputs": ["3\n", "7\n", "10\n"]})
GOOD = "a, b = map(int, input().split())\nprint(a + b)"


def score(code, truth, **options):
    response = f"I think.\n```python\n{code}\n```\nDone."
    return compute_score(data_source="apps", solution_str=response, ground_truth=truth, **options)


def test_a_right_program():
    assert score(GOOD, SUMS) == {"score": 1.0, "tests_passed": 3, "tests_total": 3, "tests": ["passed"] * 3}


def test_a_wrong_program_stops_at_its_first_failure():
    assert score("print(3)", SUMS) == {"score": 0.0, "tests_passed": 1, "tests_total": 3, "tests": ["passed", "wrong"]}


def test_the_share_of_tests():
    result = score("a, b = map(int, input().split())\nprint(a + b if a != 3 else 1 / 0)", SUMS, continuous=True)
    assert result == {
        "score": pytest.approx(2 / 3),
        "tests_passed": 2,
        "tests_total": 3,
        "tests": ["passed", "error", "passed"],
    }


def test_no_code():
    result = compute_score(data_source="apps", solution_str="I do not know.", ground_truth=SUMS)
    assert (result["score"], result["tests"]) == (0.0, ["no code"])


@pytest.mark.parametrize(
    "code",
    [
        "def add(a, b):\n    print('debugging')\n    return a + b",
        "class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b",
    ],
)
def test_a_function(code):
    assert score(code, {"fn_name": "add", "inputs": [[1, 2], "3\n4"], "outputs": [[3], "7"]})["score"] == 1.0


def test_names_that_problems_take_for_granted():
    code = (
        "def f(xs: List[int]) -> Dict[str, int]:\n    return {'n': len(xs), 's': gcd(*xs)}, Counter(xs), {3, 1}, (1,)"
    )
    assert (
        score(
            code, {"fn_name": "f", "inputs": [[[4, 6]]], "outputs": [[{"n": 2, "s": 2}, {"4": 1, "6": 1}, [1, 3], [1]]]}
        )["score"]
        == 1.0
    )


def test_assertions():
    truth = {"assert_case": ["assert f(2) == 4", "assert f('a') == 'aa'", "assert f(1) != 3"]}
    assert score("def f(x): return 2 * x", truth)["score"] == 1.0
    assert score("def f(x): return 4", truth)["tests"] == ["passed", "wrong"]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("import os; os._exit(0)", "wrong"),
        ("raise SystemExit", "wrong"),
        ("class E:\n    def __eq__(self, other): return True\ndef f(x): return E()", "wrong"),
        ("def f(x):\n    while True: pass", "timeout"),
        ("def g(x): return 4", "error"),
        ("import sys; print(4); sys.stdout.flush()\ndef f(x): raise ValueError", "error"),
    ],
)
def test_code_cannot_talk_itself_into_a_pass(code, outcome):
    assert score(code, {"assert_case": ["assert f(2) == 4"]}, test_timeout_s=1.5)["tests"] == [outcome]


def test_the_whole_answer_has_a_deadline():
    truth = {"inputs": ["x"] * 50, "outputs": ["x"] * 50}
    result = score("import time; time.sleep(0.5); print(input())", truth, deadline_s=2.0, continuous=True)
    assert result["tests"][-1] == "timeout"
    assert 0 <= result["tests_passed"] <= 5
    assert result["score"] == result["tests_passed"] / 50


def test_a_service_that_is_not_there_is_no_zero(monkeypatch):
    monkeypatch.setattr("rl_rewards.sandbox.service._FIRST_PAUSE_S", 1000.0)
    with pytest.raises(SandboxError, match=r"service at http://127\.0\.0\.1:9"):
        score(GOOD, SUMS, sandbox_fusion={"url": "http://127.0.0.1:9", "max_concurrent": 2, "memory_limit_mb": 64})


def test_settings_reach_the_sandbox():
    result = score("x = bytearray(300 << 20)", SUMS, sandbox_fusion={"url": None, "memory_limit_mb": 200})
    assert result["tests"] == ["memory"]


@pytest.mark.parametrize("name", ["code", "codecontests", "apps", "codeforces", "taco"])
def test_found_by_data_source(name):
    registry = Registry(Selection())
    registry.load_entry_points()
    assert registry.load("reward", name) is compute_score
