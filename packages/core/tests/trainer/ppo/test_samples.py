import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.contracts.reward import RewardResult
from rl_core.trainer.ppo.samples import KEPT_STEPS, RESPONSE_CHARACTERS, SampleFile, shortened
from rl_core.trainer.ppo.seeding import group_uid
from rl_core.trainer.ppo.validation import VALIDATION_STEP
from rl_dataproto import DataProto, jagged_from_rows


class Letters:
    """Token i is the letter i; 26 is a special token."""

    def decode(self, ids, skip_special_tokens=False):
        return "".join(
            "<s>" if number == 26 else chr(97 + number) for number in ids if not (skip_special_tokens and number == 26)
        )


def rows(uids, length=2, **columns):
    count = len(uids)
    objects = {
        "uid": uids,
        "reward_model": [{"ground_truth": str(row)} for row in range(count)],
        "data_source": ["letters"] * count,
        "finish_reason": ["stop"] * count,
    } | columns
    return DataProto.from_dict(
        tensors={
            "prompts": jagged_from_rows([torch.tensor([26, row]) for row in range(count)]),
            "responses": jagged_from_rows([torch.tensor([row] * length + [26]) for row in range(count)]),
        },
        non_tensors={name: np.array(values, dtype=object) for name, values in objects.items()},
    )


def results(count):
    return [
        RewardResult(float(row), extra={"acc": row % 2 == 1, "pred": "x" * 900, "w": np.float32(0.5)})
        for row in range(count)
    ]


def file(tmp_path, count=2, total_steps=10):
    config = SimpleNamespace(default_local_dir=str(tmp_path / "run"), run_folder_samples=count)
    return SampleFile(config, Letters(), total_steps)


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]


def test_the_first_rows_of_a_step_with_every_component_of_their_reward(tmp_path):
    file(tmp_path).trained(1, rows(["a", "a", "b"]), results(3))
    first, second = lines(tmp_path)
    assert (first["step"], first["split"], first["uid"]) == (1, "train", "a")
    assert (second["prompt"], second["response"], second["num_tokens"]) == ("<s>b", "bb", 3)
    assert (second["score"], second["ground_truth"], second["finish_reason"]) == (1.0, "1", "stop")
    assert second["components"]["acc"] is True
    assert second["components"]["w"] == 0.5
    assert len(second["components"]["pred"]) < 600


def test_a_missing_reward_says_why(tmp_path):
    file(tmp_path).trained(1, rows(["a"]), [RewardResult(None, error="ValueError: no")])
    assert [(line["score"], line["error"]) for line in lines(tmp_path)] == [(None, "ValueError: no")]


def test_held_out_prompts_are_the_same_each_time_also_when_one_has_no_answer(tmp_path):
    uids = [group_uid(VALIDATION_STEP, number) for number in range(3)]
    one = file(tmp_path)
    one.validated(0, rows([uids[0], uids[0], uids[1], uids[2]]), results(4))
    one.validated(5, rows([uids[1], uids[2], uids[2]]), results(3))
    assert [(line["step"], line["uid"]) for line in lines(tmp_path)] == [(0, uids[0]), (0, uids[1]), (5, uids[1])]


def test_a_long_run_keeps_some_steps_the_first_and_the_last(tmp_path):
    total = 7 * KEPT_STEPS + 3
    one = file(tmp_path, count=1, total_steps=total)
    for step in range(1, total + 1):
        one.trained(step, rows(["a"]), results(1))
    steps = [line["step"] for line in lines(tmp_path)]
    assert steps[0] == 1
    assert steps[-1] == total
    assert len(steps) <= KEPT_STEPS + 2


def test_0_keeps_none(tmp_path):
    one = file(tmp_path, count=0)
    one.trained(1, rows(["a"]), results(1))
    one.validated(1, rows([group_uid(VALIDATION_STEP, 0)]), results(1))
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_has_each_step_once_and_a_new_one_starts_empty(tmp_path):
    one = file(tmp_path)
    for step in (1, 2, 3):
        one.trained(step, rows(["a"]), results(1))
    one.resume(2)
    one.trained(3, rows(["b"]), results(1))
    assert [(line["step"], line["uid"]) for line in lines(tmp_path)] == [(1, "a"), (2, "a"), (3, "b")]
    one.start()
    one.trained(1, rows(["c"]), results(1))
    assert [line["uid"] for line in lines(tmp_path)] == ["c"]
    assert (tmp_path / "run" / "samples.previous.1.jsonl").is_file()


def test_a_long_text_keeps_its_ends(tmp_path):
    file(tmp_path).trained(1, rows(["a"], length=20_000), results(1))
    assert len(lines(tmp_path)[0]["response"]) < RESPONSE_CHARACTERS + 60
    assert lines(tmp_path)[0]["num_tokens"] == 20_001


@pytest.mark.parametrize(
    ("text", "limit", "expected"), [("abcdef", 6, "abcdef"), ("abcdefghi", 6, "abcd […3 characters left out…] hi")]
)
def test_shortened(text, limit, expected):
    assert shortened(text, limit) == expected
