import time

import numpy as np
import pytest
from rl_rewards.answers import announced, find_answer, golds, last_boxed, last_tagged, response_text
from rl_rewards.errors import GraderError, GroundTruthError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\fbox{\frac{1}{2}} done", r"\frac{1}{2}"),
        (r"first \boxed{3} then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"first \boxed{3} then \fbox{4}", "4"),
        (r"\fbox{4} then \boxed{3}", "3"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {7}", "7"),
        (r"\boxed 7 apples", "7"),
        (r"$\boxed 7$", "7"),
        (r"\boxed{\frac{1}{2", None),
        (r"\boxed{3} and then \boxed{4", None),
        (r"\boxed{ }", None),
        (r"\boxed{}", None),
        (r"\boxed", None),
        ("", None),
    ],
)
def test_b48_the_last_box_with_its_braces_counted(text, expected):
    assert last_boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is 7.", "7"),
        ("answer: 3\nFinal Answer: **8**\nbye", "8"),
        ("ANSWER = x + 1", "x + 1"),
        ("the answer, is 7", None),
        ("answers are 7", None),
        ("answer:", None),
    ],
)
def test_announced(text, expected):
    assert announced(text) == expected


def test_the_last_complete_pair_of_tags():
    assert last_tagged("<answer>1</answer> <answer> 2 </answer> <answer>3") == "2"
    assert last_tagged("<answer></answer>") is None
    assert last_tagged("</answer><answer>") is None
    assert last_tagged("<x>1</x>", "x") == "1"


def test_the_first_way_that_finds_an_answer_decides():
    text = "<think>answer: 1</think>\n#### 2\n\\boxed{3}\n<answer>4</answer>\nlast"
    found = {way: find_answer(text, [way]) for way in ("tag", "boxed", "hashes", "announced", "last_line")}
    assert found == {"tag": "4", "boxed": "3", "hashes": "2", "announced": "1</think>", "last_line": "last"}
    assert find_answer("x", ["tag", "boxed"]) is None
    assert find_answer("<think>a</think> x ", ["tag", "all"]) == "x"
    with pytest.raises(ValueError, match=r"extract names \['box'\]; answers are found by tag, boxed"):
        find_answer("x", ["box"])


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        (4, ["4"]),
        (np.float64(0.5), ["0.5"]),
        (" x ", ["x"]),
        (["a", None, "b"], ["a", "b"]),
        (np.array(["a", "b"], dtype=object), ["a", "b"]),
        ({"target": np.array(["a"])}, ["a"]),
        ({"target": "a"}, ["a"]),
        (0, ["0"]),
    ],
)
def test_b42_right_answers_in_every_form_that_files_give_them(truth, expected):
    assert golds(truth) == expected


@pytest.mark.parametrize("truth", [None, "", "  ", [], {"target": None}, {}, [None], np.array([])])
def test_a_row_without_a_right_answer_is_an_error(truth):
    with pytest.raises(GroundTruthError, match=r"the row needs a right answer in reward_model\.ground_truth") as raised:
        golds(truth)
    assert isinstance(raised.value, GraderError)
    assert isinstance(raised.value, ValueError)


def test_response_text():
    assert [response_text(value) for value in ("x", None, 3)] == ["x", "", "3"]


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 150000,
        "<answer>" * 100000,
        "answer " * 150000,
        "answer" + " " * 1000000,
        "answer: 1 " * 100000,
        "\\boxed{" + "{" * 1000000,
        "</answer>" * 100000,
        "#" * 1000000,
        "\\" * 1000000,
        "\\boxed " * 150000,
    ],
)
def test_b52_a_megabyte_takes_little_time(text):
    started = time.process_time()
    for way in ("tag", "boxed", "hashes", "announced", "last_line", "all"):
        find_answer(text, [way])
    assert time.process_time() - started < 2
