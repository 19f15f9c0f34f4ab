import math

import numpy as np
import pytest
import rl_core.trainer.ppo.rollout_correction as module
import torch
from rl_core.config.algorithm import AlgorithmConfig, RolloutCorrectionConfig
from rl_core.errors import ConfigError, DataError
from rl_core.plugins import get_registry
from rl_core.trainer.ppo.advantage import compute_advantage
from rl_core.trainer.ppo.rollout_correction import correct_rollouts, generator_log_probs
from rl_dataproto import DataProto, jagged_from_rows

NAN = float("nan")


def jagged(*rows, dtype=torch.float32):
    return jagged_from_rows([torch.tensor(row, dtype=dtype) for row in rows])


def rows(column):
    return [row.tolist() for row in column.unbind()]


def logs(*ratios):
    return [math.log(ratio) for ratio in ratios]


MASK = jagged([1, 0, 1], [1], [0, 0], [1, 1], dtype=torch.bool)
ZERO = jagged([0.0, NAN, 0.0], [0.0], [NAN, 7.0], [0.0, 0.0])
OLD = jagged(logs(4.0, 9.0, 0.5), logs(1.0), logs(1.0, 1.0), logs(1.25, 1.0))


def batch(**columns):
    return DataProto.from_dict(
        tensors={"response_mask": MASK, "old_log_probs": OLD, "rollout_log_probs": ZERO} | columns,
        non_tensors={"uid": np.array(["a", "a", "b", "b"], dtype=object)},
    )


def algorithm(**keys):
    return AlgorithmConfig(
        adv_estimator="grpo", norm_adv_by_std_in_grpo=False, rollout_correction=RolloutCorrectionConfig(**keys)
    )


def test_weights_are_a_column_of_the_batch():
    result, metrics = correct_rollouts(batch(), algorithm(rollout_is="token"))
    weights = result.batch["rollout_is_weights"]
    assert rows(weights) == [pytest.approx(row) for row in ([2.0, 0.0, 0.5], [1.0], [0.0, 0.0], [1.25, 1.0])]
    assert weights.dtype == torch.float32
    assert "rejected" not in result.batch.keys()  # noqa: SIM118 - a TensorDict
    assert metrics["rollout_corr/rollout_is_mean"].value == pytest.approx((2 + 0.5 + 1 + 1.25 + 1) / 5)
    assert metrics["rollout_corr/rollout_is_eff_sample_size"].value == pytest.approx(
        5.75**2 / (5 * (4 + 0.25 + 1 + 1.5625 + 1))
    )
    assert metrics["rollout_corr/kl"].value == pytest.approx(-math.log(4 * 0.5 * 1.25) / 5)
    assert all(math.isfinite(metric.value) for metric in metrics.values())


def test_weights_are_normalised_over_what_is_not_rejected():
    keys = {"rollout_is_batch_normalize": True, "rollout_rs": "token_k1", "rollout_rs_threshold": 3.0}
    result, metrics = correct_rollouts(batch(), algorithm(rollout_is="token", **keys))
    assert rows(result.batch["rejected"]) == [[True, False, False], [False], [False, False], [False, False]]
    factor = (0.5 + 1 + 1.25 + 1) / 4
    assert metrics["rollout_corr/rollout_is_batch_norm_factor"].value == pytest.approx(factor)
    assert rows(result.batch["rollout_is_weights"])[3] == pytest.approx([1.25 / factor, 1 / factor])
    assert metrics["rollout_corr/rollout_rs_masked_fraction"].value == pytest.approx(1 / 5)


def test_masked_importance_sampling():
    keys = {"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": "0.5_1.5"}
    result, metrics = correct_rollouts(batch(), algorithm(rollout_is="sequence", **keys))
    # Products: 2, 1, none, 1.25.
    assert rows(result.batch["rollout_is_weights"])[0] == pytest.approx([2.0, 0.0, 2.0])
    assert rows(result.batch["rejected"]) == [[True, False, True], [False], [False, False], [False, False]]
    assert metrics["rollout_corr/rollout_rs_seq_masked_fraction"].value == pytest.approx(1 / 3)
    assert metrics["rollout_corr/rollout_is_mean"].value == pytest.approx((1 + 1.25 * 2) / 3)


def test_the_sample_size_of_sequence_weights_counts_responses():
    # Products 2, 1 and 1.25, whatever the number of tokens.
    _, metrics = correct_rollouts(batch(), algorithm(rollout_is="sequence"))
    assert metrics["rollout_corr/rollout_is_eff_sample_size"].value == pytest.approx(
        4.25**2 / (3 * (4 + 1 + 1.5625)), rel=1e-6
    )


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_parts_in_which_rows_are_compared_do_not_show(monkeypatch, level):
    keys = {
        "rollout_is_batch_normalize": True,
        "rollout_rs": "token_k1,seq_mean_k3",
        "rollout_rs_threshold": [3.0, 0.05],
    }
    whole, metrics = correct_rollouts(batch(), algorithm(rollout_is=level, **keys))
    monkeypatch.setattr(module, "ROWS_AT_A_TIME", 1)
    parts, found = correct_rollouts(batch(), algorithm(rollout_is=level, **keys))
    assert {name: metric.value for name, metric in found.items()} == pytest.approx(
        {name: metric.value for name, metric in metrics.items()}, abs=1e-12
    )
    for column in ("rejected", "rollout_is_weights"):
        assert rows(parts.batch[column]) == rows(whole.batch[column])


@pytest.mark.parametrize("keys", [{}, {"bypass_mode": True, "rollout_rs": "token_k1", "rollout_rs_threshold": 2.0}])
def test_off_or_inside_the_loss_adds_nothing(keys):
    given = batch()
    result, metrics = correct_rollouts(given, algorithm(**keys))
    assert result is given
    assert metrics == {}


def test_no_trained_token_at_all():
    nothing = jagged([0, 0, 0], [0], [0, 0], [0, 0], dtype=torch.bool)
    keys = {"rollout_is_batch_normalize": True, "rollout_rs": "seq_max_k3", "rollout_rs_threshold": 0.1}
    result, metrics = correct_rollouts(batch(response_mask=nothing), algorithm(rollout_is="token", **keys))
    assert metrics == {}
    assert not any(any(row) for row in rows(result.batch["rejected"]) + rows(result.batch["rollout_is_weights"]))


def test_no_log_probs_and_nan_are_refused():
    without = batch().select(["response_mask", "old_log_probs"])
    with pytest.raises(DataError, match=r"found no rollout_log_probs.*calculate_log_probs"):
        correct_rollouts(without, algorithm(rollout_is="token"))
    with pytest.raises(DataError, match="found no rollout_log_probs"):
        generator_log_probs(without)
    broken = batch(old_log_probs=jagged([0.0, 0.0, 0.0], [NAN], [NAN, NAN], [0.0, 0.0]))
    with pytest.raises(DataError, match=r"found NaN in 1 of 4 rows \(rows 1\)"):
        correct_rollouts(broken, algorithm(rollout_is="token"))


def test_bounds_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="1 must lie within"):
        correct_rollouts(batch(), algorithm(rollout_is="token", rollout_is_threshold=0.5))


@pytest.mark.parametrize("given", [batch(), batch().select(["response_mask", "rollout_log_probs"])])
def test_the_generator_s_log_probs_become_the_old_ones(given):
    result = generator_log_probs(given)
    assert rows(result.batch["old_log_probs"])[3] == [0.0, 0.0]
    assert rows(result.batch["response_mask"]) == rows(MASK)


def test_a_rejected_row_never_shifts_its_group_s_baseline():
    """The known leak: three answers, of which the one that is rejected had the only other reward."""
    three = DataProto.from_dict(
        tensors={
            "response_mask": jagged([1, 1], [1], [1, 1], dtype=torch.bool),
            "token_level_scores": jagged([0.0, 1.0], [0.0], [0.0, 100.0]),
            "old_log_probs": jagged(logs(1.0, 1.0), logs(1.0), logs(30.0, 1.0)),
            "rollout_log_probs": jagged([0.0, 0.0], [0.0], [0.0, 0.0]),
        },
        non_tensors={"uid": np.array(["a", "a", "a"], dtype=object)},
    )
    keys = algorithm(rollout_rs="seq_mean_k1", rollout_rs_threshold=2.0)
    corrected, _ = correct_rollouts(three, keys)
    result, _ = compute_advantage(corrected, keys, None, get_registry())
    assert rows(result.batch["advantages"]) == [[0.5, 0.5], [-0.5], [0.0, 0.0]]
    assert rows(result.batch["response_mask"]) == [[True, True], [True], [False, False]]
    alone, _ = compute_advantage(three.select_idxs(np.array([0, 1])), keys, None, get_registry())
    assert rows(result.batch["advantages"])[:2] == rows(alone.batch["advantages"])


def test_nothing_is_written_into_the_batch_that_came_in():
    keys = algorithm(rollout_is="token", rollout_rs="token_k1", rollout_rs_threshold=3.0)
    given = batch(token_level_scores=jagged([0.0, 0.0, 1.0], [0.0], [0.0, 0.0], [0.0, 1.0]))
    before = {name: rows(column) for name, column in given.batch.items()}
    corrected, _ = correct_rollouts(given, keys)
    between = set(corrected.batch.keys())
    compute_advantage(corrected, keys, None, get_registry())
    assert set(corrected.batch.keys()) == between
    assert rows(corrected.batch["response_mask"]) == before["response_mask"]
    assert set(given.batch.keys()) == set(before)
    without = given.select(["response_mask", "rollout_log_probs"])
    generator_log_probs(without)
    assert set(without.batch.keys()) == {"response_mask", "rollout_log_probs"}
