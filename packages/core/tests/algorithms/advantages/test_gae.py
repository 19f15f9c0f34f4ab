import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.advantages.gae import gae, generalized_advantages
from rl_core.algorithms.inputs import AdvantageInputs
from rl_core.errors import ConfigError, DataError, ShapeError

NAN, INF = float("nan"), float("inf")
PLAIN = SimpleNamespace(gamma=1.0, lam=0.95)


def _raw(rewards, values, mask, gamma=1.0, lam=0.95):
    return generalized_advantages(
        torch.tensor([rewards]), torch.tensor([values]), torch.tensor([mask]).bool(), gamma=gamma, lam=lam
    )


def _whitened(rewards, values, mask, config=PLAIN):
    return gae(
        AdvantageInputs(
            token_level_rewards=torch.tensor(rewards),
            values=torch.tensor(values),
            response_mask=torch.tensor(mask).bool(),
        ),
        config,
    )


@pytest.mark.parametrize("masked_value", [50.0, -1e30, NAN, INF])
def test_b21_a_masked_value_is_not_bootstrapped_from(masked_value):
    advantages, returns = _raw([0.0, 1.0, 0.0], [0.5, 0.2, masked_value], [1, 1, 0])
    assert advantages[0].tolist() == [pytest.approx(0.46), pytest.approx(0.8), 0.0]
    assert returns[0].tolist() == [pytest.approx(0.96), pytest.approx(1.0), 0.0]


def test_discounting_by_hand():
    # t=2: d=1-.5=.5; t=1: d=.5*.5-1=-.75, A=-.75+.5*.8*.5=-.55; t=0: d=.5*1-2=-1.5, A=-1.5+.4*-.55=-1.72
    advantages, returns = _raw([0.0, 0.0, 1.0], [2.0, 1.0, 0.5], [1, 1, 1], gamma=0.5, lam=0.8)
    assert advantages[0].tolist() == pytest.approx([-1.72, -0.55, 0.5])
    assert returns[0].tolist() == pytest.approx([0.28, 0.45, 1.0])


def test_an_observation_is_stepped_over():
    # Without the two observation tokens the row is test_discounting_by_hand's.
    advantages, returns = _raw(
        [0.0, NAN, 0.0, 7.0, 1.0], [2.0, NAN, 1.0, 99.0, 0.5], [1, 0, 1, 0, 1], gamma=0.5, lam=0.8
    )
    assert advantages[0].tolist() == pytest.approx([-1.72, 0.0, -0.55, 0.0, 0.5])
    assert returns[0].tolist() == pytest.approx([0.28, 0.0, 0.45, 0.0, 1.0])


def test_lambda_one_is_return_to_go_minus_value_and_lambda_zero_is_one_step():
    rewards, values = [0.1, 0.2, 0.3], [1.0, 2.0, 4.0]
    _, returns = _raw(rewards, values, [1, 1, 1], lam=1.0)
    assert returns[0].tolist() == pytest.approx([0.6, 0.5, 0.3])
    advantages, _ = _raw(rewards, values, [1, 1, 1], lam=0.0)
    assert advantages[0].tolist() == pytest.approx([0.1 + 2 - 1, 0.2 + 4 - 2, 0.3 - 4])


def test_advantages_are_whitened_over_the_batch_and_returns_are_not():
    rewards, values, mask = (
        [[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]],
        [[0.5, 0.2, 9.0], [1.0, 9.0, 9.0]],
        [[1, 1, 0], [1, 0, 0]],
    )
    advantages, returns = _whitened(rewards, values, mask)
    raw = [0.46, 0.8, 1.0]
    mean = sum(raw) / 3
    std = math.sqrt(sum((x - mean) ** 2 for x in raw) / 2)
    expected = [(x - mean) / std for x in raw]
    assert advantages.tolist() == [
        pytest.approx([*expected[:2], 0.0], abs=1e-5),
        pytest.approx([expected[2], 0, 0], abs=1e-5),
    ]
    assert returns.tolist() == [pytest.approx([0.96, 1.0, 0.0]), pytest.approx([2.0, 0.0, 0.0])]


def test_b33_a_row_with_a_missing_reward_teaches_nothing_and_enters_no_statistic():
    rest, rest_returns = _whitened([[0.0, 1.0], [2.0, 0.0]], [[0.5, 0.2], [1.0, 0.3]], [[1, 1], [1, 0]])
    advantages, returns = _whitened(
        [[0.0, 1.0], [0.0, NAN], [2.0, 0.0]], [[0.5, 0.2], [0.7, 0.8], [1.0, 0.3]], [[1, 1], [1, 1], [1, 0]]
    )
    torch.testing.assert_close(advantages[[0, 2]], rest)
    torch.testing.assert_close(returns[[0, 2]], rest_returns)
    assert advantages[1].tolist() == [0.0, 0.0]
    assert returns[1].tolist() == [pytest.approx(0.7), pytest.approx(0.8)]


def test_b19_nothing_masked_in_and_one_token_are_exactly_zero():
    for mask in ([[0, 0]], [[1, 0]]):
        advantages, _ = _whitened([[3.0, NAN]], [[1.0, NAN]], mask)
        assert advantages.tolist() == [[0.0, 0.0]]
    empty, _ = _whitened([[]], [[]], [[]])
    assert empty.shape == (1, 0)


def test_inputs_are_not_written_to_and_no_gradient_is_kept():
    rewards, values = torch.tensor([[0.0, NAN]]), torch.tensor([[0.5, 2.0]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    advantages, returns = generalized_advantages(rewards, values, mask, gamma=1.0, lam=1.0)
    assert rewards.isnan().tolist() == [[False, True]]
    assert values.tolist() == [[0.5, 2.0]]
    assert not advantages.requires_grad
    assert not returns.requires_grad


def _slow(rewards, values, mask, gamma, lam):
    """Equation 16 as a double sum over the emitted tokens alone."""
    kept = [t for t, keep in enumerate(mask) if keep]
    r, v = [rewards[t] for t in kept], [values[t] for t in kept] + [0.0]
    deltas = [r[i] + gamma * v[i + 1] - v[i] for i in range(len(kept))]
    advantages = [0.0] * len(mask)
    for i, t in enumerate(kept):
        advantages[t] = sum((gamma * lam) ** (j - i) * deltas[j] for j in range(i, len(kept)))
    return advantages


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 4),
    width=st.integers(1, 6),
    extra=st.integers(0, 3),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
    garbage=st.sampled_from([NAN, INF, -1e30]),
    seed=st.integers(0, 2**31),
)
def test_any_mask_garbage_padding_and_order_like_the_equation(rows, width, extra, gamma, lam, garbage, seed):
    rng = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, rows, width, dtype=torch.float64, generator=rng)
    mask = torch.rand(rows, width, generator=rng) < 0.6
    expected = torch.tensor(
        [_slow(r, v, m, gamma, lam) for r, v, m in zip(rewards.tolist(), values.tolist(), mask.tolist(), strict=True)],
        dtype=torch.float64,
    )
    order = torch.randperm(rows, generator=rng)

    def pad(x):
        return torch.nn.functional.pad(torch.where(mask, x, garbage), (0, extra), value=garbage)[order]

    padded_mask = torch.nn.functional.pad(mask, (0, extra))[order]
    advantages, returns = generalized_advantages(pad(rewards), pad(values), padded_mask, gamma=gamma, lam=lam)
    torch.testing.assert_close(advantages[:, :width], expected[order], rtol=0, atol=1e-10)
    expected_returns = torch.where(mask, expected + values, 0.0)[order]
    torch.testing.assert_close(returns[:, :width], expected_returns, rtol=0, atol=1e-10)
    assert advantages[:, width:].count_nonzero() == returns[:, width:].count_nonzero() == 0


@pytest.mark.parametrize(("key", "value"), [("gamma", 1.1), ("gamma", -0.1), ("lam", NAN), ("lam", 2.0)])
def test_a_discount_outside_the_unit_interval_is_refused(key, value):
    with pytest.raises(ConfigError, match=rf"algorithm\.{key}"):
        _whitened([[1.0]], [[1.0]], [[1]], SimpleNamespace(**{"gamma": 1.0, "lam": 1.0, key: value}))


def test_missing_values_are_refused():
    inputs = AdvantageInputs(token_level_rewards=torch.zeros(1, 1), response_mask=torch.ones(1, 1).bool())
    with pytest.raises(ConfigError, match="critic"):
        gae(inputs, PLAIN)


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_critic_that_is_not_finite_is_refused_with_the_row(value):
    with pytest.raises(DataError, match="1 of 2 rows, first in row 1"):
        _whitened([[1.0], [1.0]], [[1.0], [value]], [[1], [1]])


def test_shapes_that_differ_are_refused_with_both():
    mask = torch.ones(1, 2).bool()
    with pytest.raises(ShapeError, match=r"rewards \(1, 3\).*response_mask \(1, 2\)"):
        generalized_advantages(torch.zeros(1, 3), torch.zeros(1, 2), mask, gamma=1.0, lam=1.0)
    with pytest.raises(ShapeError, match=r"values \(2, 2\).*response_mask \(1, 2\)"):
        generalized_advantages(torch.zeros(1, 2), torch.zeros(2, 2), mask, gamma=1.0, lam=1.0)
