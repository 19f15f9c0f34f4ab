import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.contracts.reward import RewardFailure, RewardResult
from rl_core.errors import ConfigError
from rl_core.scoring.function import FileFunction, FunctionsBySource
from rl_core.scoring.manager import NaiveRewardManager
from rl_dataproto import DataProto, jagged_from_rows

pytestmark = pytest.mark.heavy


class Letters:
    def decode(self, ids, skip_special_tokens=True):
        return "".join(chr(96 + i) for i in ids)


def column(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def batch(*responses, named=False):
    n = len(responses)
    names = {"request_id": column([f"r{i}" for i in range(n)])} if named else {}
    return DataProto.from_dict(
        tensors={
            "prompts": jagged_from_rows([torch.tensor([24, 25])] * n),
            "responses": jagged_from_rows([torch.tensor(row) for row in responses]),
        },
        non_tensors={
            "data_source": column(["d"] * n),
            "reward_model": column([{"ground_truth": "x"}] * n),
            "uid": column([f"u{i}" for i in range(n)]),
            **names,
        },
    )


@pytest.fixture
def manage():
    made = []

    def make(function, timeout=30.0, max_failed=0.5):
        settings = SimpleNamespace(timeout=timeout, num_workers=2, memory_limit_mb=None, max_concurrent=None)
        config = SimpleNamespace(reward_model=settings, trainer=SimpleNamespace(max_failed_reward_fraction=max_failed))
        made.append(NaiveRewardManager(function, Letters(), config))
        return made[-1]

    yield make
    for manager in made:
        manager.close()


def test_a_function_gets_the_arguments_that_it_names(manage):
    def score(response_length, prompt_str, response_ids, num_turns, uid, raw_prompt):
        return {"score": response_length, "seen": [prompt_str, response_ids, num_turns, uid, raw_prompt]}

    results = manage(score).collect(batch([1], [1, 2]))
    assert results == [
        RewardResult(1.0, {"seen": ["xy", [1], 1, "u0", None]}),
        RewardResult(2.0, {"seen": ["xy", [1, 2], 1, "u1", None]}),
    ]


def test_an_unknown_argument_is_refused_before_anything_is_scored(manage):
    with pytest.raises(ConfigError, match="needs 'judge'"):
        manage(lambda judge: 0.0)


def test_a_file_is_loaded_by_the_process_too_and_errors_come_early(manage, tmp_path):
    file = tmp_path / "my reward.py"
    file.write_text(
        "import os\nfrom dataclasses import dataclass\n\n@dataclass\nclass A:\n    pid: int\n\n"
        "async def judge(solution_str, bonus):\n    return {'score': bonus + len(solution_str), 'pid': A(os.getpid()).pid}\n"
    )
    manager = manage(FileFunction(str(file), "judge", {"bonus": 2}))
    (result,) = manager.collect(batch([1]))
    assert result.score == 3.0
    assert [result.extra["pid"]] == manager._pool.worker_ids()
    with pytest.raises(ConfigError, match="needs 'bonus'"):
        manage(FileFunction(str(file), "judge"))


def test_plural_arguments_make_one_call_of_all_rows(manage):
    results = manage(lambda solution_strs: [len(solution_strs)] * len(solution_strs)).collect(batch([1], [2], [3]))
    assert [result.score for result in results] == [3.0] * 3


def test_scoring_starts_with_submit_and_a_named_row_is_scored_once(manage, tmp_path):
    calls = tmp_path / "calls"

    def note(solution_str):
        with calls.open("a") as file:
            file.write(f"{solution_str}\n")
        return 1.0

    manager, rows = manage(note), batch([1], [2], [3], named=True)
    manager.submit(rows.select_idxs([1]))
    ends = time.monotonic() + 30
    while not calls.exists() and time.monotonic() < ends:
        time.sleep(0.01)
    assert calls.read_text() == "b\n"
    manager.submit(rows)
    assert [result.score for result in manager.collect(rows)] == [1.0] * 3
    assert sorted(calls.read_text().split()) == ["a", "b", "c"]


def test_a_step_that_is_lost_is_not_waited_for_row_by_row(manage):
    function = lambda solution_str: time.sleep(60)  # noqa: E731
    results = manage(function, timeout=0.3, max_failed=0.1).collect(batch(*[[1]] * 30))
    late = [result for result in results if result.failure is RewardFailure.TIMEOUT]
    skipped = [result for result in results if result.failure is RewardFailure.SKIPPED]
    assert len(late) + len(skipped) == 30
    assert 4 <= len(late) <= 8  # more than a tenth, and what was under way then
    assert late[0].error == "no score within 0.3 s (reward_model.timeout)"
    assert all(re.match("not scored: ", result.error) for result in skipped)
    assert skipped


def test_each_data_source_has_its_function(manage):
    targets = {"d": "rl_testing.fakes.reward:count_letter"}

    class Registry:
        def load(self, kind, name):
            assert (kind, name) == ("reward", "d")

        def record(self, kind, name):
            return SimpleNamespace(name=name, target=targets[name])

    function = FunctionsBySource(Registry())
    assert [result.score for result in manage(function).collect(batch([24, 1], [1]))] == [0.5, 0.0]
    assert function(data_source="d", solution_str="xa", ground_truth="x") == 0.5


def test_rows_without_a_name_are_known_by_all_that_identifies_them(manage):
    """A uid may come again in another step, for another question."""
    rows = batch([1])
    manager = manage(lambda ground_truth, extra_info: len(ground_truth) + len(extra_info or ""))
    manager.submit(rows)
    for column_name, value, score in (("reward_model", {"ground_truth": "xyz"}, 3.0), ("extra_info", "ab", 3.0)):
        other = batch([1])
        other.non_tensor_batch[column_name] = column([value])
        assert [result.score for result in manager.collect(other)] == [score]
    assert [result.score for result in manager.collect(rows)] == [1.0]


def test_rows_that_nobody_collects_are_forgotten_and_scored_again_if_asked_for(manage, monkeypatch):
    monkeypatch.setattr("rl_core.scoring.manager.MAX_KEPT", 2)
    rows = batch([1], [2, 2], [3, 3, 3], [4] * 4, named=True)
    manager = manage(lambda response_length: response_length)
    for row in range(4):
        manager.submit(rows.select_idxs([row]))
    assert [key[0] for key in manager._scores] == ["r2", "r3"]
    assert [result.score for result in manager.collect(rows)] == [1.0, 2.0, 3.0, 4.0]
    assert not manager._scores


def test_two_batches_in_flight_keep_their_own_scores(manage):
    manager = manage(lambda response_length: response_length)
    first, second = batch([1], [1, 1], named=True), batch([2, 2, 2], [2], named=True)  # names that come again
    manager.submit(first)
    manager.submit(second)
    assert [result.score for result in manager.collect(second)] == [3.0, 1.0]
    assert [result.score for result in manager.collect(first)] == [1.0, 2.0]
