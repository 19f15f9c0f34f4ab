import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.policy_losses.dppo_kl import binary_kl, dppo_kl
from rl_core.errors import ConfigError


def logs(*probabilities):
    return [math.log(p) for p in probabilities]


def slow_kl(old, new):
    p, q = math.exp(old), math.exp(new)
    return p * (old - new) + (1 - p) * math.log((1 - p) / (1 - q))


def test_the_divergence_by_hand():
    old, new = torch.tensor(logs(0.5, 0.5, 0.01)).double(), torch.tensor(logs(0.25, 0.5, 0.1)).double()
    # ln 2 / 2 + ln(0.5 / 0.75) / 2 = ln(4 / 3) / 2; equal probabilities; 0.01 ln 0.1 + 0.99 ln 1.1.
    expected = [math.log(4 / 3) / 2, 0.0, 0.01 * math.log(0.1) + 0.99 * math.log(1.1)]
    assert binary_kl(old, new).tolist() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_divergence_at_the_ends(dtype):
    ends = torch.tensor([0.0, -1e-6, -0.7, -200.0, -5000.0], dtype=dtype)
    old, new = ends.repeat_interleave(5), ends.repeat(5)
    kl = binary_kl(old, new)
    assert not kl.isnan().any()
    assert (kl > -1e-6).all()
    assert kl[old == new].count_nonzero() == 0
    assert binary_kl(ends[1:2], ends[:1]).item() == math.inf, "certain now, and was not"
    assert binary_kl(torch.tensor([1e-7]), torch.tensor([0.0])).item() == 0.0


def test_a_token_on_its_way_back_is_never_held(inputs, actor):
    new, old = logs(0.9, 0.1, 0.9, 0.1), logs(0.5, 0.5, 0.5, 0.5)
    found = dppo_kl(inputs(new, old, [1.0, 1.0, -1.0, -1.0]), actor(clip_ratio=0.05))
    assert found.metrics["pg_clipfrac"].values[0].tolist() == [True, False, False, True]
    assert found.token_loss[0].tolist() == pytest.approx([0.0, -0.2 * new[1], 1.8 * new[2], 0.0])


def test_each_side_has_its_own_bound(inputs, actor):
    new, old = logs(0.6, 0.4), logs(0.5, 0.5)
    assert slow_kl(old[0], new[0]) == pytest.approx(0.0204, abs=1e-4)
    config = actor(clip_ratio_low=0.03, clip_ratio_high=0.01)
    found = dppo_kl(inputs(new, old, [1.0, -1.0]), config)
    assert found.metrics["pg_clipfrac"].values[0].tolist() == [True, False]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), low=st.floats(0.001, 0.5), high=st.floats(0.001, 0.5), cap=st.floats(1.1, 5))
def test_like_plain_python(seed, low, high, cap, same_as_slow, actor):
    def slow(row):
        losses = []
        for new, old, a, w in zip(row.log_prob, row.old_log_prob, row.advantages, row.weights, strict=True):
            kl = slow_kl(old, new)
            allowed = kl <= high or new <= old if a > 0 else kl <= low or new >= old
            losses.append(-w * a * min(math.exp(new - old), cap) * new if allowed else 0.0)
        return losses

    same_as_slow(dppo_kl, actor(clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=cap), slow, seed)


@pytest.mark.parametrize("changes", [{"clip_ratio_c": 1.0}, {"clip_ratio_low": -0.1}])
def test_bounds_that_cannot_work_are_refused(changes, inputs, actor):
    with pytest.raises(ConfigError, match=next(iter(changes))):
        dppo_kl(inputs([-1.0], [-1.0], [1.0]), actor(**changes))
