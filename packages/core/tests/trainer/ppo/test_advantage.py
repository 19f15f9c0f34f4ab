from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.algorithms.kl_controller import AdaptiveKLController
from rl_core.plugins import get_registry
from rl_core.trainer.ppo.advantage import compute_advantage
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
