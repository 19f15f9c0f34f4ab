import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.config.reward import SandboxConfig
from rl_core.contracts.reward import RewardFailure, RewardResult, parse_reward
from rl_core.errors import ConfigError, MissingRewardError, PluginApiError, PluginNotFoundError, ShapeError
from rl_core.plugins import Registry, RewardRecord
from rl_core.plugins.selection import Selection
from rl_core.trainer.ppo.reward import (
    attach_rewards,
    check_data_sources,
    check_ground_truth,
    load_reward_function,
    scored_rows,
)
from rl_dataproto import DataProto, jagged_from_rows


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


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, "None"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("many", "'many', not a number"),
        ({"acc": 1.0}, r"without 'score' \(keys: \['acc'\]\)"),
        ({"score": None}, "None"),
        (10**400, "larger than any float"),
    ],
)
def test_what_is_no_reward_is_missing_never_zero(value, error):
    result = parse_reward(value)
    assert (result.score, result.failure) == (None, RewardFailure.INVALID)
    assert re.search(error, result.error)


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


def test_a_score_that_is_not_finite_is_missing_and_what_was_cut_is_told():
    columns = {
        "rm_scores": jagged([[0.0, 0.5], [float("nan")], [float("inf")]], torch.float32),
        "rm_truncated": torch.tensor([True, False, False]),
    }
    results = scored_rows(DataProto.from_dict(tensors=columns))
    assert [result.score for result in results] == [0.5, None, None]
    assert [result.failure for result in results[1:]] == ["invalid", "invalid"]
    assert [result.extra["rm_truncated"] for result in results] == [1, 0, 0]


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


def test_each_score_stands_in_its_own_row_and_the_batch_stays_as_it_is():
    masks = [[1, 1], [1, 0, 1, 0], [1], [0, 1, 0]]
    given = batch([1, 2], [3, 4, 5, 6], [7], [8, 9, 9], masks=masks)
    for missing in (None, 2):
        results = [RewardResult(None if row == missing else row + 0.5, error="boom") for row in range(4)]
        scored, _ = attach_rewards(given, results, max_missing_fraction=0.5)
        rows = [[0.0, 0.5], [0.0, 0.0, 1.5, 0.0], [2.5], [0.0, 3.5, 0.0]]
        kept = [row for number, row in enumerate(rows) if number != missing]
        assert [row.tolist() for row in scored.batch["token_level_scores"].unbind()] == kept
        assert scored.batch["token_level_scores"].dtype == torch.float32
        assert set(given.batch.keys()) == {"responses", "response_mask"}
        assert not any(name.startswith("reward_extra/") for name in given.non_tensor_batch)


@pytest.mark.parametrize("masks", [[[0, 0], [1]], [[1, 1], [0]], [[0, 0], [0]]])
def test_a_score_without_a_token_for_it_is_an_error_never_another_rows(masks):
    with pytest.raises(ShapeError, match=f"row {0 if not any(masks[0]) else 1} has a score"):
        attach_rewards(batch([1, 2], [3], masks=masks), [RewardResult(1.0), RewardResult(2.0)], 0.0)


def test_too_many_missing_rewards_stop_the_run_and_say_why():
    results = [RewardResult(1.0), RewardResult(None, error="KeyError: 'boom'")]
    with pytest.raises(MissingRewardError, match=r"1 of 2 rewards are missing.*KeyError: 'boom'"):
        attach_rewards(batch([1], [2]), results, max_missing_fraction=0.1)


TARGET = {"target": "json:dumps", "summary": "A reward."}


def rewards(*records):
    registry = Registry(Selection())
    registry.register_distribution("acme", "1.0", records)
    return registry


def config(path, name="compute_score", **kwargs):
    custom = SimpleNamespace(path=None if path is None else str(path), name=name, reward_kwargs=kwargs)
    return SimpleNamespace(
        custom_reward_function=custom, reward_model=SimpleNamespace(sandbox_fusion=SandboxConfig(url="http://box"))
    )


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
    with pytest.raises(ConfigError, match=r"no such function or class; it has score"):
        load_reward_function(config(tmp_path / "r.py"), registry=None)


def test_b54_unknown_data_source_is_found_before_a_model_is_loaded():
    registry = rewards(RewardRecord(name="openai/gsm8k", aliases=("gsm8k",), prefixes=("aime",), **TARGET))
    check_data_sources({"openai/gsm8k": 0, "gsm8k": 1, "aime2024": 2}, registry)
    for source in ("", None, "my/gsm8k-copy", 7):
        what = "no data_source" if source is None else f"data_source {source!r}, for which no reward is installed"
        expected = rf"row 3 has {what}\..*Installed: openai/gsm8k, gsm8k, aime\*\. Name"
        with pytest.raises(ConfigError, match=expected):
            check_data_sources({source: 3}, registry)


def test_a_row_without_the_right_answer_is_found_before_a_model_is_loaded():
    registry = rewards(
        RewardRecord(name="compares", prefixes=("aime",), capabilities=frozenset({"ground_truth"}), **TARGET),
        RewardRecord(name="rates", **TARGET),
    )
    right = {"data_source": "aime2024", "reward_model": {"ground_truth": 0}, "index": 4}
    free = {"data_source": "rates", "reward_model": None, "index": 5}
    check_ground_truth([right, free], None, registry)
    check_ground_truth([free], "rates", registry)
    for reward_model in (None, {}, {"style": "rule"}, {"ground_truth": None}):
        wrong = right | {"reward_model": reward_model, "index": 6}
        with pytest.raises(
            ConfigError, match=r"row 6 has no ground truth.*reward 'aime2024' compares.*reward_model: \{"
        ):
            check_ground_truth([right, wrong], None, registry)
    with pytest.raises(ConfigError, match="row 5 has no ground truth"):
        check_ground_truth([right, free], "compares", registry)


def test_a_reward_whose_library_is_absent_is_found_before_a_model_is_loaded_too():
    registry = rewards(RewardRecord(name="needy", requires=("acme-games>=2",), **TARGET))
    with pytest.raises(PluginApiError, match=r"(?s)reward 'needy'.*pip install 'acme-games>=2'"):
        check_data_sources({"needy": 0}, registry)


def test_an_installed_reward_by_its_name_with_its_arguments():
    registry = rewards(RewardRecord(name="counts", summary="Where a text is found.", target="json:dumps"))
    function = load_reward_function(config(None, "counts", indent=1), registry)
    assert function(obj=[1]) == "[\n 1\n]"
    with pytest.raises(PluginNotFoundError, match="reward 'count' is not known"):
        load_reward_function(config(None, "count"), registry)
    by_row = load_reward_function(config(None), registry)
    assert by_row.for_source("counts").target == "json:dumps"


def test_rows_that_are_not_to_be_trained_on_are_marked_and_counted():
    results = [RewardResult(1.0, is_trained=False), RewardResult(None, error="late"), RewardResult(0.0)]
    kept, metrics = attach_rewards(batch([1], [2], [3]), results, 0.5)
    assert kept.batch["untrained"].tolist() == [True, False]
    assert metrics["reward/untrained"].value == 1
    kept, metrics = attach_rewards(batch([1]), [RewardResult(1.0)], 0.5)
    assert "untrained" not in kept.batch.keys()  # noqa: SIM118 - a TensorDict
    assert "reward/untrained" not in metrics
