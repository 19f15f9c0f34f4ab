import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.masks import fill_masked, masked_mean, masked_sum, masked_whiten, spread_over_mask
from rl_core.errors import ShapeError

NAN, INF = float("nan"), float("inf")
X = torch.tensor([[1.0, 2.0, NAN], [INF, 4.0, 9.0]])
MASK = torch.tensor([[True, True, False], [False, True, False]])


def test_fill_masked():
    assert fill_masked(X, MASK).tolist() == [[1.0, 2.0, 0.0], [0.0, 4.0, 0.0]]
    assert fill_masked(X, MASK, -1.0).tolist() == [[1.0, 2.0, -1.0], [-1.0, 4.0, -1.0]]
    assert fill_masked(X.bfloat16(), MASK).dtype == torch.bfloat16


def test_sum_and_mean_over_all_and_over_one_dim():
    assert masked_sum(X, MASK).item() == 7.0
    assert masked_sum(X, MASK, dim=1).tolist() == [3.0, 4.0]
    assert masked_mean(X, MASK).item() == pytest.approx(7 / 3)
    assert masked_mean(X, MASK, dim=1).tolist() == [1.5, 4.0]
    assert masked_mean(X, MASK, dim=0).tolist() == [1.0, 3.0, 0.0]


def test_half_precision_is_summed_in_float32():
    ones = torch.ones(1, 1000, dtype=torch.bfloat16)
    assert masked_sum(ones, torch.ones(1, 1000, dtype=torch.bool)).item() == 1000.0


def test_b19_nothing_masked_in_is_zero_with_a_zero_gradient():
    x = torch.tensor([[-0.3, NAN]], requires_grad=True)
    loss = masked_mean(x, torch.zeros(1, 2, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0.0
    assert x.grad.tolist() == [[0.0, 0.0]]


def test_no_gradient_reaches_a_masked_position():
    x = X.clone().requires_grad_()
    masked_mean(x, MASK).backward()
    assert x.grad.tolist() == [[pytest.approx(1 / 3), pytest.approx(1 / 3), 0.0], [0.0, pytest.approx(1 / 3), 0.0]]


def test_whiten_uses_the_unbiased_variance():
    x = torch.tensor([[1.0, 2.0, NAN], [3.0, 77.0, 77.0]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert masked_whiten(x, mask).tolist() == [[pytest.approx(-1.0), 0.0, 0.0], [pytest.approx(1.0), 0.0, 0.0]]


def test_whiten_adds_eps_to_the_variance():
    x, mask = torch.tensor([[1.0, 2.0, 3.0]]), torch.ones(1, 3, dtype=torch.bool)
    assert masked_whiten(x, mask, eps=3.0).tolist() == [[pytest.approx(-0.5), 0.0, pytest.approx(0.5)]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whiten_of_equal_values_is_exactly_zero(dtype):
    x = torch.full((3, 7), 0.1, dtype=dtype)
    assert masked_whiten(x, torch.ones(3, 7, dtype=torch.bool)).count_nonzero() == 0


def test_whiten_of_one_value_or_none_is_exactly_zero():
    one = torch.tensor([[True, False]])
    assert masked_whiten(torch.tensor([[5.0, NAN]]), one).tolist() == [[0.0, 0.0]]
    assert masked_whiten(torch.tensor([[5.0, NAN]]), ~(one | ~one)).tolist() == [[0.0, 0.0]]
    assert masked_whiten(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool)).shape == (2, 0)


@pytest.mark.parametrize("reduce", [fill_masked, masked_sum, masked_mean, masked_whiten])
def test_shapes_that_differ_are_refused_with_both(reduce):
    with pytest.raises(ShapeError, match=r"\(2, 3\).*\(2, 2\)"):
        reduce(torch.zeros(2, 3), torch.zeros(2, 2, dtype=torch.bool))


def test_gradcheck():
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: masked_mean(x, MASK, dim=1), x)
    torch.autograd.gradcheck(lambda x: masked_whiten(x, MASK), x)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 5), width=st.integers(1, 6), extra=st.integers(0, 4), seed=st.integers(0, 2**31), data=st.data()
)
def test_any_garbage_any_padding_any_order_like_plain_python(rows, width, extra, seed, data):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, dtype=torch.float64, generator=rng)
    mask = torch.rand(rows, width, generator=rng) < 0.6
    kept = [v for row, keep in zip(x.tolist(), mask.tolist(), strict=True) for v, k in zip(row, keep, strict=True) if k]
    mean = math.fsum(kept) / max(len(kept), 1)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in kept) / max(len(kept) - 1, 1) + 1e-8)
    whitened = [
        [(v - mean) / std if k and len(kept) > 1 else 0.0 for v, k in zip(r, m, strict=True)]
        for r, m in zip(x.tolist(), mask.tolist(), strict=True)
    ]

    order = torch.tensor(data.draw(st.permutations(range(rows))))
    garbage = data.draw(st.sampled_from([NAN, INF, -INF, 1e30]))
    x = torch.nn.functional.pad(torch.where(mask, x, garbage), (0, extra), value=garbage)[order]
    mask = torch.nn.functional.pad(mask, (0, extra))[order]
    assert masked_sum(x, mask).item() == pytest.approx(math.fsum(kept), abs=1e-12)
    assert masked_mean(x, mask).item() == pytest.approx(mean, abs=1e-12)
    torch.testing.assert_close(
        masked_whiten(x, mask)[:, :width], torch.tensor(whitened, dtype=torch.float64)[order], rtol=0, atol=1e-9
    )
    assert masked_whiten(x, mask)[:, width:].count_nonzero() == 0


def test_spread_over_mask_gives_each_position_its_row_value():
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert spread_over_mask(torch.tensor([2.0, NAN]), mask).tolist() == [[2.0, 0.0, 2.0], [0.0, 0.0, 0.0]]
    with pytest.raises(ShapeError, match="row_values"):
        spread_over_mask(torch.zeros(3), mask)
