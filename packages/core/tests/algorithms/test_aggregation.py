import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms import aggregation
from rl_core.algorithms.inputs import LossTotals
from rl_core.errors import ConfigError, ShapeError

NAN = float("nan")
MODES = {
    "token-mean": aggregation.token_mean,
    "token-sum": aggregation.token_sum,
    "seq-mean-token-sum": aggregation.seq_mean_token_sum,
    "seq-mean-token-sum-norm": aggregation.seq_mean_token_sum_norm,
    "seq-mean-token-mean": aggregation.seq_mean_token_mean,
}
LOSS = torch.tensor([[1.0, 2.0, 3.0], [4.0, NAN, NAN], [NAN, NAN, NAN]])
MASK = ~LOSS.isnan()


@pytest.fixture(params=MODES.values(), ids=MODES.keys())
def aggregate(request):
    return request.param


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 10 / 4),
        ("token-sum", 10.0),
        ("seq-mean-token-sum", (6 + 4) / 2),
        ("seq-mean-token-sum-norm", (6 + 4) / 2 / 8),
        ("seq-mean-token-mean", (2 + 4) / 2),
    ],
)
def test_hand_computed(mode, expected):
    assert MODES[mode](LOSS, MASK, LossTotals.of(MASK, max_response_length=8)).item() == pytest.approx(expected)


def test_loss_scale_factor_replaces_the_maximum_response_length():
    totals = LossTotals.of(MASK, max_response_length=8)
    assert aggregation.seq_mean_token_sum_norm(LOSS, MASK, totals, 10.0).item() == pytest.approx(0.5)


@pytest.mark.parametrize("factor", [0.0, -1.0, NAN])
def test_a_loss_scale_factor_that_is_not_positive_is_refused(factor):
    with pytest.raises(ConfigError, match="loss_scale_factor"):
        aggregation.seq_mean_token_sum_norm(LOSS, MASK, LossTotals.of(MASK, 8), factor)


@pytest.mark.parametrize("split", [[[0, 1]], [[0], [1]], [[1], [0]]])
def test_b17_token_mean_does_not_depend_on_the_micro_batch_size(split):
    mask = torch.tensor([[True] * 2 + [False] * 4, [True] * 6])
    totals = LossTotals.of(mask, 6)
    w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    loss = 0.0
    for rows in split:
        token_loss = w * torch.tensor([[1.0] * 6, [0.2] * 6], dtype=torch.float64)[rows]
        share = aggregation.token_mean(token_loss, mask[rows], totals)
        share.backward()
        loss += share.item()
    assert loss == pytest.approx(0.8, abs=1e-12)
    assert w.grad.item() == pytest.approx(0.4, abs=1e-12)


def test_b19_all_masked_is_zero_with_a_zero_gradient(aggregate):
    x = torch.tensor([[-0.5, NAN]], requires_grad=True)
    mask = torch.zeros(1, 2, dtype=torch.bool)
    for totals in (LossTotals.of(mask, 2), LossTotals(6, 3, 2)):
        x.grad = None
        share = aggregate(x * 2, mask, totals)
        share.backward()
        assert share.item() == 0.0
        assert x.grad.tolist() == [[0.0, 0.0]]


def test_b19_one_all_masked_micro_batch_beside_a_normal_one():
    loss = torch.full((2, 6), 0.5)
    mask = torch.tensor([[False] * 6, [True] * 6])
    totals = LossTotals.of(mask, 6)
    shares = [aggregation.token_mean(loss[i : i + 1], mask[i : i + 1], totals).item() for i in (0, 1)]
    assert sum(shares) == pytest.approx(0.5)


@pytest.mark.parametrize("pads", [0, 2])
def test_b35_padding_for_sequence_parallelism_is_not_counted(pads):
    mask = torch.nn.functional.pad(torch.ones(1, 10, dtype=torch.bool), (0, pads))
    loss = torch.nn.functional.pad(torch.full((1, 10), 0.5), (0, pads), value=7.0)
    assert aggregation.token_mean(loss, mask, LossTotals.of(mask, 10)).item() == pytest.approx(0.5)


def _partitions(rows):
    """Every way to deal rows into unordered, non-empty piles."""
    if not rows:
        yield []
        return
    for smaller in _partitions(rows[1:]):
        yield [[rows[0]], *smaller]
        for i, pile in enumerate(smaller):
            yield [*smaller[:i], [rows[0], *pile], *smaller[i + 1 :]]


def test_every_split_of_the_rows_gives_the_same_loss_and_gradient(aggregate):
    torch.manual_seed(0)
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 0]]).bool()
    totals = LossTotals.of(mask, 4)
    whole = aggregate(x.square(), mask, totals)
    (gradient,) = torch.autograd.grad(whole, x)
    partitions = list(_partitions(list(range(5))))
    assert len(partitions) == 52
    for piles in partitions:
        x.grad = None
        shares = [aggregate(x[pile].square(), mask[pile], totals) for pile in piles]
        for share in shares:
            share.backward()
        assert sum(share.item() for share in shares) == pytest.approx(whole.item(), abs=1e-10)
        torch.testing.assert_close(x.grad, gradient, rtol=0, atol=1e-10)


def _slow(mode, loss, mask, max_response_length):
    rows = [[v for v, k in zip(r, m, strict=True) if k] for r, m in zip(loss, mask, strict=True)]
    rows = [row for row in rows if row]
    flat = [v for row in rows for v in row]
    if not rows:
        return 0.0
    return {
        "token-mean": sum(flat) / len(flat),
        "token-sum": sum(flat),
        "seq-mean-token-sum": sum(map(sum, rows)) / len(rows),
        "seq-mean-token-sum-norm": sum(map(sum, rows)) / len(rows) / max_response_length,
        "seq-mean-token-mean": sum(sum(row) / len(row) for row in rows) / len(rows),
    }[mode]


@settings(deadline=None, max_examples=40)
@given(
    mode=st.sampled_from(sorted(MODES)),
    rows=st.integers(1, 6),
    width=st.integers(1, 5),
    extra=st.integers(0, 3),
    size=st.integers(1, 6),
    seed=st.integers(0, 2**31),
)
def test_any_micro_batch_size_padding_and_order_like_plain_python(mode, rows, width, extra, size, seed):
    rng = torch.Generator().manual_seed(seed)
    loss = torch.randn(rows, width, dtype=torch.float64, generator=rng)
    mask = torch.rand(rows, width, generator=rng) < 0.6
    expected = _slow(mode, loss.tolist(), mask.tolist(), width)
    totals = LossTotals.of(mask, width)
    order = torch.randperm(rows, generator=rng)
    loss = torch.nn.functional.pad(torch.where(mask, loss, NAN), (0, extra), value=NAN)[order]
    mask = torch.nn.functional.pad(mask, (0, extra))[order]
    shares = [MODES[mode](loss[i : i + size], mask[i : i + size], totals) for i in range(0, rows, size)]
    assert sum(share.item() for share in shares) == pytest.approx(expected, abs=1e-10)


def test_gradcheck(aggregate):
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: aggregate(x, MASK, LossTotals(7, 3, 5)), x)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"])
def test_totals_that_count_nothing_while_the_mask_holds_tokens_are_refused(mode):
    with pytest.raises(ShapeError, match="=0, but this shard's mask holds 4 tokens"):
        MODES[mode](LOSS, MASK, LossTotals(0, 0, 8))


def test_shapes_that_differ_and_integer_masks_are_refused(aggregate):
    with pytest.raises(ShapeError, match=r"\(3, 3\).*\(3, 2\)"):
        aggregate(LOSS, MASK[:, :2], LossTotals(4, 2, 8))
    with pytest.raises(ShapeError, match="bool"):
        aggregate(LOSS, MASK.long(), LossTotals(4, 2, 8))
