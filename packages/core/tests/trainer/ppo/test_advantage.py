from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.algorithms.kl_controller import AdaptiveKLController
from rl_core.errors import DataError, ShapeError
from rl_core.plugins import get_registry
from rl_core.trainer.ppo.advantage import BatchColumns, compute_advantage, resample
from rl_dataproto import DataProto, jagged_from_rows


def jagged(*rows, dtype=torch.float32):
    return jagged_from_rows([torch.tensor(row, dtype=dtype) for row in rows])


def rows(column):
    return [row.tolist() for row in column.unbind()]


def batch(**columns):
    return DataProto.from_dict(
        tensors={
            "response_mask": jagged([1, 1], [1], [1, 1, 1], dtype=torch.bool),
            "token_level_scores": jagged([0.0, 1.0], [0.0], [0.0, 0.0, 1.0]),
        }
        | columns,
        non_tensors={"uid": np.array(["a", "a", "b"], dtype=object)},
    )


def algorithm(name, **overrides):
    options = {"adv_estimator": name, "gamma": 1.0, "lam": 1.0, "norm_adv_by_std_in_grpo": True, "kl_penalty": "kl"}
    return SimpleNamespace(**(options | overrides))


def test_grpo_over_uneven_groups_keeps_the_columns_jagged():
    result, metrics = compute_advantage(batch(), algorithm("grpo", norm_adv_by_std_in_grpo=False), None, get_registry())

    assert rows(result.batch["advantages"])[:2] == [[0.5, 0.5], [-0.5]]
    assert rows(result.batch["token_level_rewards"]) == [[0.0, 1.0], [0.0], [0.0, 0.0, 1.0]]
    assert metrics == {}


def test_gae_uses_the_values():
    values = jagged([0.5, 0.5], [0.0], [1.0, 1.0, 1.0])
    result, _ = compute_advantage(batch(values=values), algorithm("gae"), None, get_registry())

    assert rows(result.batch["returns"]) == [[1.0, 1.0], [0.0], [1.0, 1.0, 1.0]]


def test_b27_kl_in_reward_only():
    one = DataProto.from_dict(
        tensors={
            "response_mask": jagged([1, 1, 1], dtype=torch.bool),
            "token_level_scores": jagged([0.0, 0.0, 1.0]),
            "old_log_probs": jagged([-1.0, -1.0, -1.0]),
            "ref_log_prob": jagged([-1.1, -1.1, -1.1]),
        },
        non_tensors={"uid": np.array(["a"], dtype=object)},
    )
    controller = AdaptiveKLController(kl_coef=0.1, target_kl=0.05, horizon=100)
    result, metrics = compute_advantage(one, algorithm("grpo"), controller, get_registry())

    assert rows(result.batch["token_level_rewards"])[0] == pytest.approx([-0.01, -0.01, 0.99], abs=1e-6)
    assert metrics["actor/reward_kl_penalty"].value == pytest.approx(0.1, abs=1e-6)
    assert metrics["actor/reward_kl_penalty_coeff"].value == 0.1
    assert controller.value == pytest.approx(0.1 * (1 + 0.2 * 1 / 100))


def test_columns_come_padded_and_by_name():
    full = batch(old_log_probs=jagged([-1.0, -2.0], [-3.0], [-4.0, -5.0, -6.0]), reward_baselines=torch.arange(3.0))
    columns = BatchColumns(full, 3)
    assert columns["old_log_probs"].tolist() == [[-1.0, -2.0, 0.0], [-3.0, 0.0, 0.0], [-4.0, -5.0, -6.0]]
    assert columns["reward_baselines"].tolist() == [0.0, 1.0, 2.0]
    assert columns["uid"].tolist() == ["a", "a", "b"]
    assert "values" not in columns
    assert columns.get("values") is None
    assert set(columns) == {"response_mask", "token_level_scores", "old_log_probs", "reward_baselines", "uid"}
    assert len(columns) == 5


def test_a_column_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(DataError, match=r"'reward_baselines'.*it has response_mask, token_level_scores, uid"):
        compute_advantage(batch(), algorithm("remax"), None, get_registry())


def test_estimators_find_their_columns():
    result, _ = compute_advantage(
        batch(reward_baselines=torch.tensor([0.5, 0.25, 0.0])), algorithm("remax"), None, get_registry()
    )
    assert rows(result.batch["advantages"]) == [[0.5, 0.5], [-0.25], [1.0, 1.0, 1.0]]


@pytest.mark.parametrize("name", ["grpo_vectorized", "rloo_vectorized"])
def test_names_known_from_elsewhere(name):
    result, _ = compute_advantage(batch(), algorithm(name, norm_adv_by_std_in_grpo=False), None, get_registry())
    assert rows(result.batch["advantages"])[0][0] > 0


def rejecting(*rejected, scores):
    return DataProto.from_dict(
        tensors={
            "response_mask": jagged([1, 1], [1, 1], [1, 1], dtype=torch.bool),
            "token_level_scores": jagged(*[[0.0, score] for score in scores]),
            "rejected": jagged(*rejected, dtype=torch.bool),
        },
        non_tensors={"uid": np.array(["a"] * 3, dtype=object)},
    )


def test_a_rejected_row_does_not_shift_its_group():
    given = rejecting([0, 0], [1, 1], [0, 0], scores=[1.0, 9.0, 0.0])
    result, _ = compute_advantage(given, algorithm("grpo", norm_adv_by_std_in_grpo=False), None, get_registry())

    assert rows(result.batch["advantages"]) == [[0.5, 0.5], [0.0, 0.0], [-0.5, -0.5]]
    assert rows(result.batch["response_mask"]) == [[True, True], [False, False], [True, True]]
    # What the row earned stays in the log.
    assert rows(result.batch["token_level_rewards"])[1] == [0.0, 9.0]


def test_a_row_keeps_its_reward_when_the_token_that_bears_it_is_rejected():
    given = rejecting([0, 1], [0, 0], [1, 0], scores=[1.0, 0.0, 0.5])
    result, _ = compute_advantage(given, algorithm("grpo", norm_adv_by_std_in_grpo=False), None, get_registry())

    assert rows(result.batch["advantages"]) == [[0.5, 0.0], [-0.5, -0.5], [0.0, 0.0]]
    assert rows(result.batch["response_mask"]) == [[True, False], [True, True], [False, True]]


def test_a_rejected_token_has_neither_advantage_nor_return():
    given = rejecting([0, 1], [0, 0], [1, 1], scores=[1.0, 0.5, 9.0])
    result, _ = compute_advantage(given, algorithm("reinforce_plus_plus"), None, get_registry())

    assert rows(result.batch["returns"]) == [[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]]
    assert [row[1] == 0.0 for row in rows(result.batch["advantages"])] == [True, False, True]


def test_rows_are_drawn_again_by_their_scores():
    config = SimpleNamespace(use_pf_ppo=True, pf_ppo=SimpleNamespace(reweight_method="pow", weight_pow=2.0))
    full, _ = compute_advantage(batch(), algorithm("grpo"), None, get_registry())
    drawn, metrics = resample(full, config, (1, 5))

    assert len(drawn) == 3
    scores = [sum(row) for row in rows(drawn.batch["token_level_scores"])]
    assert scores == [1.0, 1.0, 1.0]
    assert metrics["pf_ppo/distinct_rows"].value == pytest.approx(
        len({tuple(r) for r in rows(drawn.batch["advantages"])}) / 3
    )
    again, _ = resample(full, config, (1, 5))
    assert rows(again.batch["advantages"]) == rows(drawn.batch["advantages"])
    assert rows(full.batch["token_level_scores"]) == [[0.0, 1.0], [0.0], [0.0, 0.0, 1.0]]


def test_a_row_whose_tokens_are_all_rejected_is_not_drawn():
    config = SimpleNamespace(use_pf_ppo=True, pf_ppo=SimpleNamespace(reweight_method="pow", weight_pow=1.0))
    given = rejecting([0, 1], [1, 1], [0, 0], scores=[1.0, 9.0, 0.0])
    full, _ = compute_advantage(given, algorithm("grpo"), None, get_registry())
    drawn, metrics = resample(full, config, (0, 0))

    # The reward of the first row counts although its token is rejected; the third has none, so no weight.
    assert rows(drawn.batch["token_level_scores"]) == [[0.0, 1.0]] * 3
    assert metrics["pf_ppo/distinct_rows"].value == pytest.approx(1 / 3)


def test_without_pf_ppo_the_batch_is_handed_on():
    given = batch()
    same, metrics = resample(given, SimpleNamespace(use_pf_ppo=False), (0, 0))
    assert same is given
    assert metrics == {}


def test_a_row_that_is_not_to_be_trained_on_counts_in_its_group_all_the_same():
    result, _ = compute_advantage(
        batch(untrained=torch.tensor([True, False, False])),
        algorithm("grpo", norm_adv_by_std_in_grpo=False),
        None,
        get_registry(),
    )
    assert rows(result.batch["advantages"]) == [[0.0, 0.0], [-0.5], [1.0, 1.0, 1.0]]
    assert rows(result.batch["response_mask"]) == [[False, False], [True], [True, True, True]]


def test_rejected_and_untrained_rows_at_once():
    result, _ = compute_advantage(
        batch(
            untrained=torch.tensor([True, False, False]),
            rejected=jagged([False, False], [True], [True, False, False], dtype=torch.bool),
        ),
        algorithm("grpo", norm_adv_by_std_in_grpo=False),
        None,
        get_registry(),
    )
    # The second row is rejected, so the first, which trains nothing, is alone in its group.
    assert rows(result.batch["response_mask"]) == [[False, False], [False], [False, True, True]]
    assert rows(result.batch["advantages"]) == [[0.0, 0.0], [0.0], [0.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (torch.zeros(3, 3), r"returned Tensor \(3, 3\)"),
        ((torch.zeros(3), torch.zeros(3)), r"returned Tensor \(3,\), Tensor \(3,\)"),
        ((torch.zeros(3, 3), None), r"returned Tensor \(3, 3\), NoneType"),
    ],
)
def test_an_estimator_that_returns_something_else_is_named(found, message):
    registry = SimpleNamespace(load=lambda kind, name: lambda inputs, config: found)
    with pytest.raises(ShapeError, match=rf"advantage estimator 'acme' must return two tensors.*{message}"):
        compute_advantage(batch(), algorithm("acme"), None, registry)
