import math

import torch
from rl_core.algorithms.rollout_correction.ratios import log_ratios, row_means, row_sums

NAN, INF = float("nan"), float("inf")


def test_the_difference_is_exact_zero_where_masked_and_bounded():
    log_prob = torch.tensor([[-1.0, NAN, -500.0, -1.0]], requires_grad=True)
    generator = torch.tensor([[-1.5, INF, -1.0, -900.0]])
    found = log_ratios(log_prob, generator, torch.tensor([[True, False, True, True]]))
    assert found.tolist() == [[0.5, 0.0, -20.0, 20.0]]
    assert found.dtype == torch.float64
    assert not found.requires_grad


def test_impossible_tokens_count_as_the_bound_and_nan_is_not_hidden():
    found = log_ratios(torch.tensor([[-INF, -1.0, NAN]]), torch.tensor([[-1.0, -INF, -1.0]]), torch.ones(1, 3).bool())
    assert found[0, :2].tolist() == [-20.0, 20.0]
    assert math.isnan(found[0, 2].item())


def test_half_precision_is_widened_before_the_difference():
    a = torch.tensor([[-100.0]], dtype=torch.bfloat16)
    b = torch.tensor([[-100.25]], dtype=torch.float32)
    assert log_ratios(a, b, torch.ones(1, 1).bool()).item() == 0.25


def test_rows():
    ratio = torch.tensor([[0.5, 1.0, 9.0], [15.0, 15.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False], [True, True, True], [False, False, False]])
    assert row_sums(ratio, mask).tolist() == [1.5, 20.0, 0.0]
    assert row_means(ratio, mask).tolist() == [0.75, 10.0, 0.0]
