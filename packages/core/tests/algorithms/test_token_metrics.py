import pytest
import torch
from rl_core.algorithms.inputs import LossTotals, TokenMetric
from rl_core.algorithms.token_metrics import metric_share

NAN = float("nan")
VALUES = torch.tensor([[1.0, 2.0, NAN], [5.0, NAN, NAN], [NAN, NAN, NAN]])
MASK = ~VALUES.isnan()
TOTALS = LossTotals.of(MASK, 3)


@pytest.mark.parametrize(
    ("reduce", "whole", "combine"),
    [("mean", 8 / 3, "sum"), ("sum", 8.0, "sum"), ("max", 5.0, "max"), ("min", 1.0, "min")],
)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shares_of_any_micro_batch_size_combine_to_the_whole(reduce, whole, combine, size):
    shares = [
        metric_share(TokenMetric(VALUES[i : i + size], reduce), MASK[i : i + size], TOTALS) for i in range(0, 3, size)
    ]
    present = [share for share in shares if share is not None]
    assert {how for _, how in present} == {combine}
    assert {"sum": sum, "max": max, "min": min}[combine](v.item() for v, _ in present) == pytest.approx(whole)


def test_b19_a_shard_without_tokens_adds_zero_and_has_no_extreme():
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    assert metric_share(TokenMetric(VALUES[2:]), nothing, TOTALS)[0].item() == 0.0
    assert metric_share(TokenMetric(VALUES[2:]), nothing, LossTotals(0, 0, 3))[0].item() == 0.0
    assert metric_share(TokenMetric(VALUES[2:], "max"), nothing, TOTALS) is None
    assert metric_share(TokenMetric(VALUES[2:], "min"), nothing, TOTALS) is None


def test_booleans_count_and_no_gradient_is_kept():
    share, _ = metric_share(
        TokenMetric(torch.tensor([[True, False, True]])), torch.ones(1, 3, dtype=torch.bool), TOTALS
    )
    assert share.item() == pytest.approx(2 / 3)
    x = torch.ones(1, 3, requires_grad=True)
    assert not metric_share(TokenMetric(x), torch.ones(1, 3, dtype=torch.bool), TOTALS)[0].requires_grad
