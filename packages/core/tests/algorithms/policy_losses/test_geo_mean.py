import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.aggregation import seq_mean_token_mean
from rl_core.algorithms.policy_losses.geo_mean import geo_mean
from rl_core.errors import ConfigError

E04 = math.exp(0.4)


def test_the_geometric_mean_of_bounded_ratios(inputs, actor):
    # Log-ratios 0.2 and 1.0, bounded to 0.2 and 0.4: exp(0.3); the mean advantage is 2.
    found = geo_mean(inputs([0.2, 1.0], [0.0, 0.0], [1.0, 3.0]), actor(clip_ratio=0.4))
    assert found.token_loss[0].tolist() == pytest.approx([-2 * math.exp(0.3)] * 2)
    assert found.metrics["pg_clipfrac"].values[0].tolist() == [False, True]
    assert found.metrics["pg_clipfrac_lower"].values[0].tolist() == [False, False]


def test_only_the_side_on_which_the_advantage_pushes_is_bounded(inputs, actor):
    config = actor(clip_ratio=0.4)
    low = geo_mean(inputs([-1.0], [0.0], [1.0]), config)
    assert low.token_loss.item() == pytest.approx(-math.exp(-1.0))
    assert not low.metrics["pg_clipfrac"].values.any(), "below the bound, and not bounded: it counts nowhere"
    falling = geo_mean(inputs([-1.0], [0.0], [-1.0]), config)
    assert falling.token_loss.item() == pytest.approx(1 / E04)
    assert falling.metrics["pg_clipfrac_lower"].values.all()
    rising = geo_mean(inputs([1.0], [0.0], [-1.0]), config)
    assert rising.token_loss.item() == pytest.approx(math.exp(1.0))


def test_the_advised_aggregation_is_the_mean_over_responses(inputs, actor):
    mask = torch.tensor([[True, True, True], [True, False, False]])
    new = torch.tensor([[0.1, 0.2, 0.3], [0.5, 9.0, 9.0]], dtype=torch.float64)
    shard = inputs(new, torch.zeros_like(new), torch.tensor([[1.0] * 3, [-2.0] * 3]).double(), mask)
    loss = seq_mean_token_mean(geo_mean(shard, actor()).token_loss, mask, shard.totals)
    # Row 0: log-ratios 0.1, 0.2 and 0.3, the last bounded to 0.2; row 1: 0.5, not bounded, for its advantage is negative.
    assert loss.item() == pytest.approx((-math.exp(0.5 / 3) + 2 * math.exp(0.5)) / 2)


def test_weights_enter_by_their_geometric_mean(inputs, actor):
    def loss(*weights):
        weights = torch.tensor([weights], dtype=torch.float64)
        return geo_mean(inputs([0.0, 0.0], [0.0, 0.0], [1.0, 1.0], rollout_is_weights=weights), actor()).token_loss

    assert loss(0.5, 2.0)[0].tolist() == pytest.approx([-1.0, -1.0])
    assert loss(4.0, 1.0)[0].tolist() == pytest.approx([-2.0, -2.0])
    assert loss(0.0, 8.0)[0].tolist() == [0.0, 0.0]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), low=st.floats(0, 2), high=st.floats(0, 2))
def test_like_plain_python(seed, low, high, same_as_slow, actor):
    def slow(row):
        if not row.ratio:
            return []
        bounded, n = [], len(row.ratio)
        for change, advantage in zip(row.log_ratio, row.advantages, strict=True):
            bounded.append(min(change, high) if advantage > 0 else max(change, -low))
        weight = math.prod(row.weights) ** (1 / n)
        return [-weight * sum(row.advantages) / n * math.exp(sum(bounded) / n)] * n

    same_as_slow(geo_mean, actor(clip_ratio_low=low, clip_ratio_high=high), slow, seed)


def test_a_negative_bound_is_refused(inputs, actor):
    with pytest.raises(ConfigError, match="clip_ratio_low >= 0"):
        geo_mean(inputs([0.0], [0.0], [1.0]), actor(clip_ratio_low=-0.1))
