import json

from rl_core.plugins import get_registry
from rl_demo.files import DATA_SOURCE, write_data
from rl_demo.problems import split_problems


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_files_hold_the_split_and_share_no_question(tmp_path):
    split = split_problems(5)
    files = write_data(tmp_path / "data", split, seed=5)
    asked = {
        "sft": [row["messages"][0]["content"] for row in rows(files.sft)],
        "rl": [row["prompt"][0]["content"] for row in rows(files.rl)],
        "held_out": [row["prompt"][0]["content"] for row in rows(files.held_out)],
    }
    assert {name: len(questions) for name, questions in asked.items()} == {
        "sft": 3 * len(split.sft),
        "rl": len(split.rl),
        "held_out": len(split.held_out),
    }
    assert set(asked["held_out"]).isdisjoint(asked["sft"])
    assert set(asked["held_out"]).isdisjoint(asked["rl"])
    assert set(asked["sft"]).isdisjoint(asked["rl"])


def test_ground_truths_are_the_sums(tmp_path):
    files = write_data(tmp_path, split_problems(1), seed=1)
    for row in rows(files.rl) + rows(files.held_out):
        left, right = row["prompt"][0]["content"].rstrip("=").split("+")
        assert row["reward_model"]["ground_truth"] == str(int(left) + int(right))
        assert row["data_source"] == DATA_SOURCE


def test_the_reward_is_found_by_the_data_source():
    score = get_registry().load("reward", DATA_SOURCE)
    assert score(data_source=DATA_SOURCE, solution_str="85", ground_truth="85")["score"] == 1.0
