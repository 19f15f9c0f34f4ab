from types import SimpleNamespace

import pytest
import torch
from rl_core.algorithms.inputs import LossTotals, ValueLossInputs
from rl_core.algorithms.token_metrics import metric_share
from rl_core.algorithms.value_loss import value_loss
from rl_core.errors import ConfigError

NAN = float("nan")
CONFIG = SimpleNamespace(cliprange_value=0.5)


def _inputs(values, old_values, returns, mask=None):
    values, old_values, returns = (
        x if isinstance(x, torch.Tensor) else torch.tensor([x]) for x in (values, old_values, returns)
    )
    mask = torch.ones(values.shape, dtype=torch.bool) if mask is None else torch.tensor([mask])
    return ValueLossInputs(
        values=values, old_values=old_values, returns=returns, response_mask=mask, totals=LossTotals.of(mask, 8)
    )


def test_the_larger_of_the_plain_and_the_clipped_error():
    # token 0 stays inside the range; token 1 left it towards the target (clipped is worse); token 2 away from it.
    inputs = _inputs([1.2, 2.0, 2.0], [1.0, 1.0, 1.0], [2.0, 3.0, 0.0])
    out = value_loss(inputs, CONFIG)
    assert out.token_loss[0].tolist() == pytest.approx([0.5 * 0.8**2, 0.5 * 1.5**2, 0.5 * 2.0**2])
    assert metric_share(out.metrics["vf_clipfrac"], inputs.response_mask, inputs.totals)[0].item() == pytest.approx(
        1 / 3
    )
    assert metric_share(out.metrics["vpred_mean"], inputs.response_mask, inputs.totals)[0].item() == pytest.approx(
        5.2 / 3
    )


def test_a_clipped_token_has_no_gradient():
    values = torch.tensor([[1.2, 2.0, 2.0]], requires_grad=True)
    value_loss(_inputs(values, [1.0, 1.0, 1.0], [2.0, 3.0, 0.0]), CONFIG).token_loss.sum().backward()
    assert values.grad[0].tolist() == pytest.approx([-0.8, 0.0, 2.0])


def test_infinity_switches_clipping_off():
    out = value_loss(_inputs([1.2, 9.0], [1.0, 1.0], [2.0, 3.0]), SimpleNamespace(cliprange_value=float("inf")))
    assert out.token_loss[0].tolist() == pytest.approx([0.32, 18.0])


def test_garbage_at_masked_positions_reaches_neither_loss_nor_gradient():
    values = torch.tensor([[1.2, NAN, 1e30]], requires_grad=True)
    out = value_loss(_inputs(values, [1.0, NAN, NAN], [2.0, NAN, -1e30], [True, False, False]), CONFIG)
    out.token_loss.sum().backward()
    assert out.token_loss[0].tolist() == [pytest.approx(0.32), 0.0, 0.0]
    assert values.grad[0].tolist() == [pytest.approx(-0.8), 0.0, 0.0]


def test_only_the_values_receive_a_gradient():
    tensors = [torch.tensor([[v]], requires_grad=True) for v in (1.2, 1.0, 2.0)]
    value_loss(_inputs(*tensors), CONFIG).token_loss.sum().backward()
    assert [t.grad is None for t in tensors] == [False, True, True]


def test_half_precision_is_squared_in_float32():
    tensors = [torch.tensor([[v]], dtype=torch.bfloat16) for v in (1.0, 1.0, 1.0078125)]
    out = value_loss(_inputs(*tensors), CONFIG)
    assert out.token_loss.dtype == torch.float32
    assert out.token_loss.item() == 0.5 * 0.0078125**2


def test_gradcheck():
    torch.manual_seed(0)
    values, old, returns = torch.randn(3, 2, 4, dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False], [True, False, True, True]])
    totals = LossTotals.of(mask, 4)

    def loss(values):
        return value_loss(
            ValueLossInputs(values=values, old_values=old, returns=returns, response_mask=mask, totals=totals), CONFIG
        ).token_loss

    torch.autograd.gradcheck(loss, values.requires_grad_())


@pytest.mark.parametrize("limit", [0.0, -0.5, NAN])
def test_a_range_that_is_not_positive_is_refused(limit):
    with pytest.raises(ConfigError, match=r"critic\.cliprange_value"):
        value_loss(_inputs([1.0], [1.0], [1.0]), SimpleNamespace(cliprange_value=limit))
