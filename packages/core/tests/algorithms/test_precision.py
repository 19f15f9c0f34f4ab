import pytest
import torch
from rl_core.algorithms.precision import widen


@pytest.mark.parametrize(
    ("given", "wide"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.int64, torch.float32),
        (torch.bool, torch.float32),
    ],
)
def test_dtype(given, wide):
    assert widen(torch.ones(2, dtype=given)).dtype == wide


def test_gradient_returns_in_the_original_dtype():
    x = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    widen(x).square().sum().backward()
    assert x.grad.dtype == torch.bfloat16
    assert x.grad.tolist() == [2.0, 4.0]
