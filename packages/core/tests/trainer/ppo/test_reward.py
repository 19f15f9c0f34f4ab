import re
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.contracts.reward import RewardResult, parse_reward
from rl_core.errors import ConfigError, MissingRewardError
from rl_core.trainer.ppo.reward import (
    NaiveRewardManager,
    attach_rewards,
    check_data_sources,
    load_reward_function,
    scored_rows,
)
from rl_dataproto import DataProto, jagged_from_rows


class Letters:
    def decode(self, ids, skip_special_tokens=True):
        return "".join(chr(96 + i) for i in ids)


def jagged(rows, dtype):
    return jagged_from_rows([torch.tensor(row, dtype=dtype) for row in rows])


def batch(*responses, ground_truth="x", masks=None):
    n = len(responses)
    masks = masks or [[1] * len(response) for response in responses]
    objects = lambda value: np.array([value] * n, dtype=object)  # noqa: E731
    return DataProto.from_dict(
        tensors={"responses": jagged(responses, torch.int64), "response_mask": jagged(masks, torch.bool)},
        non_tensors={
            "data_source": objects("d"),
            "reward_model": np.array([{"ground_truth": ground_truth}] * n, dtype=object),
            "uid": np.array([f"u{i}" for i in range(n)], dtype=object),
        },
    )


def config_of(timeout):
    return SimpleNamespace(
        reward_model=SimpleNamespace(timeout=timeout), trainer=SimpleNamespace(max_failed_reward_fraction=0.5)
    )


def manager(function, timeout=60.0):
    return NaiveRewardManager(function, Letters(), config_of(timeout))


def test_scores_come_in_row_order_with_the_rows_arguments():
    seen = []

    def reward(*, data_source, solution_str, ground_truth, extra_info):
        seen.append((data_source, solution_str, ground_truth, extra_info))
        return len(solution_str)

    results = manager(reward).collect(batch([1], [1, 2, 3]))

    assert [result.score for result in results] == [1.0, 3.0]
    assert seen == [("d", "a", "x", None), ("d", "abc", "x", None)]


def test_coroutine_functions_and_dicts():
    async def reward(**_):
        return {"score": 0.5, "format": 1.0}

    assert manager(reward).collect(batch([1])) == [RewardResult(0.5, {"format": 1.0})]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, "None"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("many", "'many', not a number"),
        ({"acc": 1.0}, r"without 'score' \(keys: \['acc'\]\)"),
        ({"score": None}, "None"),
    ],
)
def test_what_is_no_reward_is_missing_never_zero(value, error):
    result = parse_reward(value)
    assert result.score is None
    assert re.search(error, result.error)


def test_a_raising_function_is_one_missing_reward():
    def reward(*, solution_str, **_):
        if solution_str == "b":
            raise KeyError("boom")
        return 1

    results = manager(reward).collect(batch([1], [2], [3]))
    assert [result.score for result in results] == [1.0, None, 1.0]
    assert "KeyError" in results[1].error


def test_a_score_that_does_not_come_is_missing_and_holds_up_nobody_else():
    released = threading.Event()

    def reward(*, solution_str, **_):
        if solution_str == "b":
            released.wait(60)
        return 1

    results = manager(reward, timeout=0.1).collect(batch([1], [2], [3]))
    released.set()
    assert [result.score for result in results] == [1.0, None, 1.0]
    assert results[1].error == "no score within 0.1 s (reward_model.timeout)"


def test_a_function_that_always_hangs_is_not_waited_for_row_by_row():
    released = threading.Event()
    results = manager(lambda **_: released.wait(60), timeout=0.05).collect(batch(*[[1]] * 20))
    released.set()
    assert [result.error.split()[0] for result in results] == ["no"] * 11 + ["not"] * 9


def test_a_reward_file_may_hold_dataclasses_and_its_errors_name_it(tmp_path):
    (tmp_path / "r.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n@dataclass\nclass A:\n    x: int = 1\n\n"
        "def compute_score(**_):\n    return A().x\n"
    )
    assert load_reward_function(config(tmp_path / "r.py"), registry=None)() == 1
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(ConfigError, match=r"broken\.py could not be loaded: ModuleNotFoundError"):
        load_reward_function(config(tmp_path / "broken.py"), registry=None)


def test_all_missing_stops_the_run_whatever_the_limit():
    with pytest.raises(MissingRewardError, match="1 of 1 rewards are missing"):
        attach_rewards(batch([1]), [RewardResult(None, error="boom")], max_missing_fraction=1.0)


def test_the_reward_models_score_is_that_of_the_last_token():
    scored = DataProto.from_dict(tensors={"rm_scores": jagged([[0.0, 0.5], [0.25]], torch.float32)})
    assert [result.score for result in scored_rows(scored)] == [0.5, 0.25]


def test_attach_puts_the_score_on_the_last_token_and_drops_missing_rows():
    results = [RewardResult(2.0, {"format": 1}), RewardResult(None, error="boom"), RewardResult(-1.0, {"format": 0})]
    scored, metrics = attach_rewards(batch([1, 2], [3], [4, 5, 6]), results, max_missing_fraction=0.5)

    assert scored.non_tensor_batch["uid"].tolist() == ["u0", "u2"]
    assert [row.tolist() for row in scored.batch["token_level_scores"].unbind()] == [[0.0, 2.0], [0.0, 0.0, -1.0]]
    assert scored.non_tensor_batch["reward_extra/format"].tolist() == [1, 0]
    assert metrics["reward/missing"].value == 1
    assert metrics["reward_extra/format/mean"].value == 0.5


def test_a_reward_never_lands_on_a_tool_result():
    tool_last = batch([1, 2, 3], masks=[[1, 1, 0]])
    scored, _ = attach_rewards(tool_last, [RewardResult(1.0)], max_missing_fraction=0.0)
    assert [row.tolist() for row in scored.batch["token_level_scores"].unbind()] == [[0.0, 1.0, 0.0]]


def test_too_many_missing_rewards_stop_the_run_and_say_why():
    results = [RewardResult(1.0), RewardResult(None, error="KeyError: 'boom'")]
    with pytest.raises(MissingRewardError, match=r"1 of 2 rewards are missing.*KeyError: 'boom'"):
        attach_rewards(batch([1], [2]), results, max_missing_fraction=0.1)


def config(path, name="compute_score", **kwargs):
    return SimpleNamespace(custom_reward_function=SimpleNamespace(path=str(path), name=name, reward_kwargs=kwargs))


def test_custom_function_from_a_file_with_its_arguments(tmp_path):
    file = tmp_path / "my reward.py"
    file.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None, bonus=0):\n"
        "    return bonus + (ground_truth in solution_str)\n"
    )

    function = load_reward_function(config(file, bonus=2), registry=None)
    assert function(data_source="d", solution_str="axb", ground_truth="x") == 3


def test_missing_custom_file_or_function(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_reward_function(config(tmp_path / "absent.py"), registry=None)
    (tmp_path / "r.py").write_text("def score(): ...\n")
    with pytest.raises(ConfigError, match=r"no such function; it has score"):
        load_reward_function(config(tmp_path / "r.py"), registry=None)


def test_b54_unknown_data_source_is_found_before_a_model_is_loaded():
    registry = SimpleNamespace(names=lambda kind: ("openai/gsm8k",))
    check_data_sources({"openai/gsm8k": 0}, registry)
    with pytest.raises(ConfigError, match=r"row 3 has data_source '', .*Installed: openai/gsm8k"):
        check_data_sources({"": 3}, registry)
