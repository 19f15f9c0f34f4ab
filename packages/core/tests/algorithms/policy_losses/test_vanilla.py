import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.aggregation import token_mean
from rl_core.algorithms.inputs import LossTotals, PolicyLossInputs
from rl_core.algorithms.policy_losses.vanilla import vanilla
from rl_core.algorithms.token_metrics import metric_share
from rl_core.errors import ConfigError

NAN, INF = float("nan"), float("inf")


def _config(**changes):
    keys = {"clip_ratio": 0.2, "clip_ratio_low": None, "clip_ratio_high": None, "clip_ratio_c": 3.0}
    return SimpleNamespace(**{**keys, **changes})


def _inputs(log_prob, old_log_prob, advantages, mask=None, **more):
    log_prob, old_log_prob, advantages = (
        x if isinstance(x, torch.Tensor) else torch.tensor([x]) for x in (log_prob, old_log_prob, advantages)
    )
    mask = torch.ones(log_prob.shape, dtype=torch.bool) if mask is None else mask
    return PolicyLossInputs(
        log_prob=log_prob,
        old_log_prob=old_log_prob,
        advantages=advantages,
        response_mask=mask,
        totals=LossTotals.of(mask, 8),
        **more,
    )


def _ratios(*ratios):
    return [math.log(r) for r in ratios]


def test_the_larger_of_the_plain_and_the_clipped_loss():
    ratios = _ratios(1.1, 1.5, 0.5, 1.5, 0.5, 4.0)
    out = vanilla(_inputs(ratios, [0.0] * 6, [2.0, 2.0, 2.0, -2.0, -2.0, -2.0]), _config())
    assert out.token_loss[0].tolist() == pytest.approx([-2.2, -2.4, -1.0, 3.0, 1.6, 6.0])


def test_metrics():
    inputs = _inputs(_ratios(1.1, 1.5, 0.5, 1.5, 0.5, 4.0), [0.0] * 6, [2.0, 2.0, 2.0, -2.0, -2.0, -2.0])
    metrics = vanilla(inputs, _config()).metrics
    assert metrics["pg_clipfrac"].values[0].tolist() == [False, True, False, False, True, False]
    assert metrics["pg_clipfrac_lower"].values[0].tolist() == [False, False, False, False, False, True]
    share, _ = metric_share(metrics["ppo_kl"], inputs.response_mask, inputs.totals)
    assert share.item() == pytest.approx(-math.log(1.1 * 1.5 * 0.5 * 1.5 * 0.5 * 4.0) / 6)


def test_separate_bounds_and_dual_clip():
    config = _config(clip_ratio_low=0.1, clip_ratio_high=0.4, clip_ratio_c=2.0)
    out = vanilla(_inputs(_ratios(1.5, 0.5, 2.5), [0.0] * 3, [1.0, -1.0, -1.0]), config)
    assert out.token_loss[0].tolist() == pytest.approx([-1.4, 0.9, 2.0])


def test_clip_ratio_alone_takes_effect():
    out = vanilla(_inputs(_ratios(1.5, 0.5), [0.0] * 2, [1.0, -1.0]), _config(clip_ratio=0.3))
    assert out.token_loss[0].tolist() == pytest.approx([-1.3, 0.7])


def test_gradient_of_clipped_unclipped_and_dual_clipped_tokens():
    x = torch.tensor([_ratios(1.1, 1.5, 0.5, 4.0)], requires_grad=True)
    vanilla(_inputs(x, [0.0] * 4, [2.0, 2.0, 2.0, -2.0]), _config()).token_loss.sum().backward()
    assert x.grad[0].tolist() == pytest.approx([-2.2, 0.0, -1.0, 0.0])


def test_b35_the_ratio_is_exactly_one_at_the_first_inner_step():
    torch.manual_seed(0)
    log_prob = (torch.randn(4, 7) * 30 - 40).requires_grad_()
    advantages = torch.randn(4, 7)
    out = vanilla(_inputs(log_prob, log_prob.detach(), advantages), _config())
    assert torch.equal(out.token_loss, -advantages)
    assert out.metrics["ppo_kl"].values.count_nonzero() == 0
    assert out.metrics["pg_clipfrac"].values.count_nonzero() == 0
    (gradient,) = torch.autograd.grad(out.token_loss.sum(), log_prob)
    assert torch.equal(gradient, -advantages)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("log_ratio", [118.0, -118.0, 5000.0, -5000.0])
@pytest.mark.parametrize("advantage", [1.5, -1.5, 0.0])
def test_b25_loss_and_gradient_are_finite_at_any_log_ratio(dtype, log_ratio, advantage):
    x = torch.tensor([[log_ratio]], dtype=dtype, requires_grad=True)
    out = vanilla(_inputs(x, torch.zeros(1, 1, dtype=dtype), torch.tensor([[advantage]])), _config())
    out.token_loss.sum().backward()
    assert math.isfinite(out.token_loss.item())
    assert math.isfinite(x.grad.item())
    assert out.token_loss.dtype == torch.float32


def test_rollout_weights_multiply_the_loss():
    weights = torch.tensor([[0.5, 2.0]], requires_grad=True)
    out = vanilla(_inputs([0.0, 0.0], [0.0, 0.0], [1.0, -3.0], rollout_is_weights=weights), _config())
    assert out.token_loss[0].tolist() == [-0.5, 6.0]
    assert not out.token_loss.requires_grad


def test_only_the_log_prob_receives_a_gradient():
    tensors = [torch.tensor([[v]], requires_grad=True) for v in (0.1, 0.0, 1.0)]
    vanilla(_inputs(*tensors), _config()).token_loss.sum().backward()
    assert [t.grad is None for t in tensors] == [False, True, True]


def test_b13_a_group_without_spread_has_no_policy_gradient():
    x = torch.tensor([[0.3, -0.2]], requires_grad=True)
    vanilla(_inputs(x, [0.0, 0.0], [0.0, 0.0]), _config()).token_loss.sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0]]


def test_b19_a_fully_masked_micro_batch_has_a_zero_gradient():
    x = torch.tensor([[NAN, 3.0]], requires_grad=True)
    inputs = _inputs(x, [NAN, INF], [NAN, 1.0], torch.zeros(1, 2, dtype=torch.bool))
    out = vanilla(inputs, _config())
    loss = token_mean(out.token_loss, inputs.response_mask, inputs.totals)
    loss.backward()
    assert loss.item() == 0.0
    assert x.grad.tolist() == [[0.0, 0.0]]
    assert all(metric_share(m, inputs.response_mask, inputs.totals)[0].item() == 0.0 for m in out.metrics.values())


def _slow(log_ratio, advantage, low, high, dual):
    ratio = math.exp(log_ratio)
    loss = max(-advantage * ratio, -advantage * min(max(ratio, 1 - low), 1 + high))
    return min(loss, -advantage * dual) if advantage < 0 else loss


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 5),
    width=st.integers(1, 4),
    extra=st.integers(0, 3),
    low=st.floats(0, 1),
    high=st.floats(0, 2),
    dual=st.floats(1.1, 5),
    garbage=st.sampled_from([NAN, INF, -INF, 1e30]),
    seed=st.integers(0, 2**31),
)
def test_any_garbage_and_padding_like_plain_python(rows, width, extra, low, high, dual, garbage, seed):
    rng = torch.Generator().manual_seed(seed)
    log_prob, old, advantages, weights = torch.randn(4, rows, width, dtype=torch.float64, generator=rng)
    mask = torch.rand(rows, width, generator=rng) < 0.6
    expected = torch.zeros(rows, width, dtype=torch.float64)
    for b, t in mask.nonzero().tolist():
        loss = _slow((log_prob - old)[b, t].item(), advantages[b, t].item(), low, high, dual)
        expected[b, t] = weights[b, t] * loss

    def pad(x):
        return torch.nn.functional.pad(torch.where(mask, x, garbage), (0, extra), value=garbage)

    padded_mask = torch.nn.functional.pad(mask, (0, extra))
    x = pad(log_prob).requires_grad_()
    inputs = _inputs(x, pad(old), pad(advantages), padded_mask, rollout_is_weights=pad(weights))
    out = vanilla(inputs, _config(clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=dual))
    torch.testing.assert_close(out.token_loss[:, :width], expected, rtol=1e-12, atol=1e-12)
    assert out.token_loss[:, width:].count_nonzero() == 0
    out.token_loss.sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad[~padded_mask].count_nonzero() == 0


def test_gradcheck():
    torch.manual_seed(0)
    log_prob, old, advantages = torch.randn(3, 3, 4, dtype=torch.float64)
    mask = torch.rand(3, 4) < 0.7
    config = _config()
    torch.autograd.gradcheck(
        lambda x: vanilla(_inputs(x, old, advantages, mask), config).token_loss, log_prob.requires_grad_()
    )


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"clip_ratio": -0.1}, "clip_ratio_low"),
        ({"clip_ratio_low": 1.5}, r"clip_ratio_low in .*found 1\.5 and 0\.2"),
        ({"clip_ratio_high": -0.1}, "clip_ratio_high"),
        ({"clip_ratio_c": 1.0}, "clip_ratio_c"),
        ({"clip_ratio_c": NAN}, "clip_ratio_c"),
    ],
)
def test_bounds_that_cannot_work_are_refused(changes, match):
    with pytest.raises(ConfigError, match=match):
        vanilla(_inputs([0.0], [0.0], [1.0]), _config(**changes))
