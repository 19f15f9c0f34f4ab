from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.contracts.reward import RewardManager, parse_reward
from rl_core.errors import ConfigError
from rl_dataproto import DataProto, jagged_from_rows
from rl_recipes.dapo import manager as module
from rl_recipes.dapo.manager import DapoRewardManager

BUFFER = {"enable": True, "len": 4, "penalty_factor": 1.0, "log": True}


class Scorer(RewardManager):
    """The manager that scores: calls the function with the number of tokens, and writes down what it is asked."""

    def __init__(self, function, tokenizer, config):
        self._function = function
        self.calls = []

    def submit(self, rows):
        self.calls.append(("submit", len(rows)))

    def collect(self, batch):
        self.calls.append(("collect", len(batch)))
        return [parse_reward(self._function(len(ids))) for ids in batch.batch["responses"].unbind()]

    def close(self):
        self.calls.append(("close", 0))


@pytest.fixture(autouse=True)
def managers(monkeypatch):
    known = {("reward_manager", "naive"): Scorer, ("reward_manager", "other"): Never}
    monkeypatch.setattr(module, "get_registry", lambda: SimpleNamespace(load=lambda kind, name: known[kind, name]))


class Never(Scorer):
    """Scores, and wants none of it trained on."""

    def collect(self, batch):
        return [replace(result, is_trained=False) for result in super().collect(batch)]


def batch(*token_counts, reasons=None):
    objects = lambda values: np.array(list(values), dtype=object)  # noqa: E731
    columns = {
        "data_source": objects("d" for _ in token_counts),
        "reward_model": objects({"ground_truth": "x"} for _ in token_counts),
        "uid": objects(f"u{row}" for row in range(len(token_counts))),
    }
    if reasons:
        columns["finish_reason"] = objects(reasons)
    return DataProto.from_dict(
        tensors={
            "responses": jagged_from_rows([torch.ones(n, dtype=torch.int64) for n in token_counts], torch.int64),
            "response_mask": jagged_from_rows([torch.ones(n, dtype=torch.bool) for n in token_counts], torch.bool),
        },
        non_tensors=columns,
    )


def config(limit=10, **options):
    return SimpleNamespace(
        data=SimpleNamespace(max_response_length=limit),
        reward_model=SimpleNamespace(reward_kwargs=options),
    )


def manager(function=lambda _: 1.0, **options):
    return DapoRewardManager(function, None, config(**options))


def test_hand_numbers():
    results = manager(overlong_buffer_cfg=BUFFER).collect(batch(2, 6, 7, 8, 10, 12))
    assert [result.score for result in results] == [1.0, 1.0, 0.75, 0.5, 0.0, 0.0]
    assert [result.extra["overlong_reward"] for result in results] == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]
    assert [result.extra["overlong"] for result in results] == [False, False, True, True, True, True]
    assert [result.extra["acc"] for result in results] == [1.0] * 6
    assert all(result.is_trained for result in results)


def test_scores_are_those_of_the_manager_that_scores():
    assert [result.score for result in manager(lambda num_tokens: num_tokens).collect(batch(1, 2, 3))] == [1, 2, 3]


def test_without_log_nothing_but_the_accuracy_is_added():
    (result,) = manager(overlong_buffer_cfg={**BUFFER, "log": False}).collect(batch(10))
    assert result.extra == {"acc": 1.0}
    assert result.score == 0.0


def test_an_accuracy_of_the_functions_own_stays():
    (result,) = manager(lambda _: {"score": -1.0, "acc": 0.0}, overlong_buffer_cfg=BUFFER).collect(batch(8))
    assert result.score == -1.5
    assert result.extra["acc"] == 0.0


def test_a_missing_reward_stays_missing_and_is_not_punished():
    (result,) = manager(lambda _: None, overlong_buffer_cfg=BUFFER, overlong_filter=True).collect(batch(10))
    assert result.score is None
    assert result.error == "the reward is None"
    assert "overlong_reward" not in result.extra


def test_filtered_responses_are_those_that_the_limit_cut_off():
    rows = batch(10, 10, 3, 3, reasons=["length", "stop", "length", "stop"])
    results = manager(overlong_filter=True).collect(rows)
    assert [result.is_trained for result in results] == [False, True, False, True]
    assert [result.score for result in results] == [1.0] * 4
    assert all(result.is_trained for result in manager().collect(rows))


def test_without_a_reason_the_length_tells():
    results = manager(overlong_filter=True).collect(batch(9, 10))
    assert [result.is_trained for result in results] == [True, False]


def test_any_manager_may_score_and_is_passed_every_call():
    found = manager(scored_by="other")
    found.submit(batch(1, 2))
    results = found.collect(batch(1, 2))
    found.close()
    assert isinstance(found._scorer, Never)
    assert found._scorer.calls == [("submit", 2), ("collect", 2), ("close", 0)]
    assert [result.is_trained for result in results] == [False, False]


def test_bad_keys_are_refused_before_anything_is_scored():
    with pytest.raises(ConfigError, match="longer than the longest response"):
        manager(overlong_buffer_cfg={"enable": True, "len": 11})
