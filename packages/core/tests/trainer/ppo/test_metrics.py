import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_core.trainer.ppo.metrics import RATIO_MEAN, RATIO_SQUARE, batch_metrics, effective_sample_size
from rl_dataproto import DataProto, jagged_from_rows, object_array

NAN = float("nan")


def batch(**columns):
    """Two rows of three tokens, of which the last of the first row is not trained on."""
    rows = {
        "prompts": [[1, 2], [1]],
        "responses": [[5, 6, 7], [5, 6, 7]],
        "response_mask": [[True, True, False], [True, True, True]],
        "token_level_scores": [[0.0, 1.0, 0.0], [0.0, 0.0, 0.5]],
        "token_level_rewards": [[0.0, 0.9, 0.0], [0.0, 0.0, 0.4]],
        "advantages": [[1.0, 2.0, 99.0], [3.0, 4.0, -5.0]],
        "returns": [[1.0, 2.0, NAN], [3.0, 4.0, 5.0]],
        **columns,
    }
    tensors = {name: jagged_from_rows([torch.tensor(row) for row in column]) for name, column in rows.items()}
    return DataProto.from_dict(tensors=tensors, non_tensors={"uid": object_array(["a", "b"])})


def test_names_and_values_by_hand():
    assert batch_metrics(batch(), max_response_length=3) == pytest.approx(
        {
            "critic/score/mean": 0.75,
            "critic/score/max": 1.0,
            "critic/score/min": 0.5,
            "critic/rewards/mean": 0.65,
            "critic/rewards/max": 0.9,
            "critic/rewards/min": 0.4,
            "critic/advantages/mean": 1.0,
            "critic/advantages/max": 4.0,
            "critic/advantages/min": -5.0,
            "critic/returns/mean": 3.0,
            "critic/returns/max": 5.0,
            "critic/returns/min": 1.0,
            "response_length/mean": 3.0,
            "response_length/max": 3.0,
            "response_length/min": 3.0,
            "response_length/clip_ratio": 1.0,
            "prompt_length/mean": 1.5,
            "prompt_length/max": 2.0,
            "prompt_length/min": 1.0,
        }
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0], 1.0),
        ([3.0] * 5, 0.0),
        ([2.0, 3.0, 4.0, 5.0, 6.0], 1.0),  # a constant error is not one of explaining
        ([5.0, 4.0, 3.0, 2.0, 1.0], -3.0),  # errors -4, -2, 0, 2, 4 have variance 8, returns 2
    ],
)
@pytest.mark.parametrize("masked", [0.0, 1e6, NAN])
def test_explained_variance_over_trained_tokens(values, expected, masked):
    column = [[*values[:2], masked], values[2:]]
    metrics = batch_metrics(batch(values=column), 3)
    assert metrics["critic/vf_explained_var"] == pytest.approx(expected)


def test_returns_that_do_not_vary_have_no_explained_variance():
    same = [[0.1, 0.1, 7.0], [0.1, 0.1, 0.1]]
    assert "critic/vf_explained_var" not in batch_metrics(batch(returns=same, values=same), 3)


def moments(weights):
    return {RATIO_MEAN: float(np.mean(weights)), RATIO_SQUARE: float(np.mean(np.square(weights)))}


def test_the_effective_sample_size_by_hand():
    assert effective_sample_size(moments([1.0, 1.0, 1.0]))["actor/ess"] == 1.0
    assert effective_sample_size(moments([4.0, 0.0, 0.0, 0.0]))["actor/ess"] == 0.25
    assert effective_sample_size(moments([1.0, 3.0]))["actor/ess"] == pytest.approx(16 / 20)


def test_a_step_without_a_policy_update_has_no_effective_sample_size():
    assert effective_sample_size({}) == {}
    assert effective_sample_size({RATIO_MEAN: 0.0, RATIO_SQUARE: 0.0}) == {}
    assert effective_sample_size({RATIO_MEAN: NAN, RATIO_SQUARE: NAN}) == {}


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9))
def test_the_effective_sample_size_is_a_share_and_does_not_see_the_scale(weights):
    share = effective_sample_size(moments(weights))["actor/ess"]
    assert 1 / len(weights) - 1e-9 <= share <= 1 + 1e-9
    assert effective_sample_size(moments(np.array(weights) * 7))["actor/ess"] == pytest.approx(share)
