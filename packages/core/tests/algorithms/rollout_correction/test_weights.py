import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_core.algorithms.rollout_correction.weights import batch_normalize, importance_weights

MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


def bounds(upper, lower=None):
    return SimpleNamespace(lower=lower, upper=upper)


def logs(*ratios):
    return torch.tensor([[math.log(r) for r in row] for row in ratios], dtype=torch.float64)


RATIOS = logs([4.0, 0.25, 9.0], [3.0, 9.0, 9.0], [9.0, 9.0, 9.0])


def test_token_weights_are_cut_at_the_cap():
    found = importance_weights(RATIOS, MASK, "token", bounds(2.0))
    assert found.weights.flatten().tolist() == pytest.approx([2.0, 0.25, 0, 2.0, 0, 0, 0, 0, 0])
    assert found.ratio.flatten().tolist() == pytest.approx([4.0, 0.25, 0, 3.0, 0, 0, 0, 0, 0])


def test_icepop_sets_what_is_outside_to_zero():
    found = importance_weights(RATIOS, MASK, "token", bounds(3.5, lower=0.5))
    assert found.weights.flatten().tolist() == pytest.approx([0, 0, 0, 3.0, 0, 0, 0, 0, 0])


def test_sequence_weights_are_the_product_over_the_response():
    found = importance_weights(RATIOS, MASK, "sequence", bounds(2.0))
    assert found.weights.flatten().tolist() == pytest.approx([1.0, 1.0, 0, 2.0, 0, 0, 0, 0, 0])
    iced = importance_weights(RATIOS, MASK, "sequence", bounds(2.0, lower=0.5))
    assert iced.weights.flatten().tolist() == pytest.approx([1.0, 1.0, 0, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("lower", [None, 0.5])
def test_agreement_is_exactly_one(level, lower):
    found = importance_weights(torch.zeros(3, 3, dtype=torch.float64), MASK, level, bounds(1.0, lower))
    assert torch.equal(found.weights, MASK.double())


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_many_extreme_tokens_stay_finite(level):
    for sign in (20.0, -20.0):
        found = importance_weights(torch.full((2, 5000), sign).double(), torch.ones(2, 5000).bool(), level, bounds(1e9))
        assert found.ratio.isfinite().all()


def test_normalized_weights_average_to_one_over_what_is_trained():
    weights = importance_weights(RATIOS, MASK, "token", bounds(2.0)).weights
    trained = torch.tensor([[True, True, False], [False, False, False], [False, False, False]])
    scaled, factor = batch_normalize(weights, trained, "token")
    assert factor == pytest.approx((2.0 + 0.25) / 2)
    assert scaled[trained].mean().item() == pytest.approx(1.0)


def test_sequences_are_averaged_however_long_they_are():
    weights = torch.tensor([[2.0, 2.0, 2.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    scaled, factor = batch_normalize(weights, mask, "sequence")
    assert factor == 1.5
    assert (scaled[0, 0] + scaled[1, 0]).item() / 2 == pytest.approx(1.0)


@pytest.mark.parametrize("trained", [MASK, torch.zeros_like(MASK)])
def test_nothing_to_average_scales_nothing(trained):
    zero = torch.zeros(3, 3, dtype=torch.float64)
    scaled, factor = batch_normalize(zero, trained, "token")
    assert factor == 1.0
    assert torch.equal(scaled, zero)


ratio = st.floats(-30, 30)


@given(
    st.lists(st.lists(ratio, min_size=3, max_size=3), min_size=1, max_size=5), st.sampled_from(["token", "sequence"])
)
def test_a_slow_reference_and_permutation(rows, level):
    x = torch.tensor(rows, dtype=torch.float64).clamp(-20, 20)
    mask = torch.tensor([[True, index % 2 == 0, index % 3 == 0] for index in range(len(rows))])
    found = importance_weights(x, mask, level, bounds(5.0)).weights
    for b, row in enumerate(x.tolist()):
        total = sum(v for v, m in zip(row, mask[b].tolist(), strict=True) if m)
        for t, value in enumerate(row):
            r = math.exp(value if level == "token" else max(-20.0, min(20.0, total)))
            assert found[b, t].item() == pytest.approx(min(r, 5.0) if mask[b, t] else 0.0)
    order = torch.arange(len(rows)).flip(0)
    assert torch.equal(importance_weights(x[order], mask[order], level, bounds(5.0)).weights, found[order])
