"""What holds for every registered policy loss, whatever it computes."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core import builtins
from rl_core.algorithms.token_metrics import metric_share
from rl_core.plugins import PolicyLossRecord, Registry, Selection

NAN, INF = float("nan"), float("inf")
RECORDS = {record.name: record for record in builtins.rl_plugins() if isinstance(record, PolicyLossRecord)}
REGISTRY = Registry(Selection())
REGISTRY.register_distribution("rl-core", "0", builtins)
LOSSES = {name: REGISTRY.load("policy_loss", name) for name in RECORDS}
AGGREGATIONS = {name: REGISTRY.load("loss_aggregation", name) for name in REGISTRY.names("loss_aggregation")}

# The weight of the log-prob is a constant of the optimization by definition, so a numerical derivative, which sees it
# change, is not the gradient.
STOPPED = {"cispo", "dppo_tv", "dppo_kl"}
EACH = pytest.mark.parametrize("name", LOSSES)


def random_batch(seed, rows=5, width=6, dtype=torch.float64):
    """Columns of ``PolicyLossInputs`` by name; a mask with holes."""
    rng = torch.Generator().manual_seed(seed)
    old, step, advantages = torch.randn(3, rows, width, dtype=torch.float64, generator=rng)
    old = -old.abs() - 0.05
    columns = {
        "log_prob": (old + 0.5 * step).clamp(max=-0.01),
        "old_log_prob": old,
        "advantages": advantages,
        "rollout_is_weights": torch.rand(rows, width, dtype=torch.float64, generator=rng) + 0.5,
    }
    mask, prepared = torch.rand(2, rows, width, generator=rng) < 0.6
    return {k: v.to(dtype) for k, v in columns.items()} | {"mask": mask, "prepared": prepared}


def take(columns, rows):
    return {name: column[rows] for name, column in columns.items()}


def run(name, actor, inputs, columns):
    """Token losses, their metrics, and the gradient of their sum in ``log_prob``."""
    x = columns["log_prob"].clone().requires_grad_()
    found = LOSSES[name](inputs(**columns | {"log_prob": x}), actor())
    (gradient,) = torch.autograd.grad(found.token_loss.sum(), x)
    return found.token_loss.detach(), found.metrics, gradient


@EACH
@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 2**31), extra=st.integers(0, 3), garbage=st.sampled_from([NAN, INF, -INF, 1e30]), data=st.data()
)
def test_neither_garbage_nor_padding_nor_order_matters(name, seed, extra, garbage, data, actor, inputs):
    columns = random_batch(seed)
    mask = columns["mask"]
    loss, metrics, gradient = run(name, actor, inputs, columns)
    order = data.draw(st.permutations(range(len(mask))))

    def spoil(column):
        if column.dtype == torch.bool:
            return torch.nn.functional.pad(column, (0, extra))[order]
        return torch.nn.functional.pad(torch.where(mask, column, garbage), (0, extra), value=garbage)[order]

    spoiled, other_metrics, other_gradient = run(name, actor, inputs, {k: spoil(v) for k, v in columns.items()})
    keep = torch.nn.functional.pad(mask, (0, extra))[order]
    width = mask.shape[1]
    torch.testing.assert_close(spoiled[:, :width], loss[order], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(other_gradient[:, :width], gradient[order], rtol=1e-12, atol=1e-12)
    assert spoiled[~keep].count_nonzero() == other_gradient[~keep].count_nonzero() == 0
    totals = inputs(**columns).totals
    for key, metric in metrics.items():
        ours, _ = metric_share(metric, mask, totals)
        theirs, _ = metric_share(other_metrics[key], keep, totals)
        assert theirs.item() == pytest.approx(ours.item(), rel=1e-12, abs=1e-12)


@EACH
@pytest.mark.parametrize("mode", AGGREGATIONS)
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 2**31), cuts=st.lists(st.integers(0, 5), max_size=4))
def test_shares_of_any_split_of_the_rows_add_up(name, mode, seed, cuts, actor, inputs):
    columns = random_batch(seed)
    totals = inputs(**columns).totals

    def share(rows):
        part = take(columns, rows)
        x = part["log_prob"].clone().requires_grad_()
        given_to = inputs(**part | {"log_prob": x})
        found = LOSSES[name](given_to, actor())
        loss = AGGREGATIONS[mode](found.token_loss, given_to.response_mask, totals)
        metrics = {k: metric_share(m, given_to.response_mask, totals)[0].item() for k, m in found.metrics.items()}
        (gradient,) = torch.autograd.grad(loss, x)
        return loss.item(), gradient, metrics

    whole, gradient, metrics = share(list(range(5)))
    edges = [0, *sorted(cuts), 5]
    parts = [share(list(range(a, b))) for a, b in itertools.pairwise(edges)]
    assert math.fsum(part[0] for part in parts) == pytest.approx(whole, rel=1e-12, abs=1e-12)
    torch.testing.assert_close(torch.cat([part[1] for part in parts]), gradient, rtol=1e-12, atol=1e-12)
    for key, value in metrics.items():
        assert math.fsum(part[2][key] for part in parts) == pytest.approx(value, rel=1e-12, abs=1e-12)


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("log_ratio", [118.0, -118.0, 5000.0, -5000.0])
@pytest.mark.parametrize("advantage", [1.5, -1.5, 0.0])
@pytest.mark.parametrize("prepared", [False, True])
def test_b25_loss_and_gradient_are_finite_at_any_log_ratio(name, dtype, log_ratio, advantage, prepared, actor, inputs):
    columns = {
        "log_prob": torch.tensor([[log_ratio, -0.5]], dtype=dtype),
        "old_log_prob": torch.tensor([[0.0, -0.5]], dtype=dtype),
        "advantages": torch.tensor([[advantage, advantage]]),
        "prepared": torch.tensor([[prepared, prepared]]),
    }
    loss, metrics, gradient = run(name, actor, inputs, columns)
    assert loss.dtype == torch.float32
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert all(metric.values.double().isfinite().all() for metric in metrics.values())


@EACH
def test_half_precision_is_widened_before_the_first_subtraction(name, actor, inputs):
    columns = random_batch(1, dtype=torch.bfloat16)
    wide = {key: column if column.dtype == torch.bool else column.float() for key, column in columns.items()}
    assert torch.equal(run(name, actor, inputs, columns)[0], run(name, actor, inputs, wide)[0])


@EACH
def test_only_the_log_prob_receives_a_gradient(name, actor, inputs):
    columns = random_batch(2)
    leaves = {key: column.clone().requires_grad_() for key, column in columns.items() if column.dtype != torch.bool}
    found = LOSSES[name](inputs(**columns | leaves), actor())
    found.token_loss.sum().backward()
    assert {key for key, leaf in leaves.items() if leaf.grad is not None} == {"log_prob"}
    assert not any(metric.values.requires_grad for metric in found.metrics.values())


@EACH
@pytest.mark.parametrize("mode", AGGREGATIONS)
def test_b19_a_fully_masked_micro_batch_has_a_zero_gradient(name, mode, actor, inputs):
    x = torch.tensor([[NAN, 3.0], [INF, -INF]], requires_grad=True)
    junk = torch.tensor([[NAN, INF], [-INF, NAN]])
    nothing = torch.zeros(2, 2, dtype=torch.bool)
    shard = inputs(x, junk, junk, nothing, rollout_is_weights=junk, prepared=~nothing)
    found = LOSSES[name](shard, actor())
    assert found.token_loss.count_nonzero() == 0
    loss = AGGREGATIONS[mode](found.token_loss, nothing, shard.totals)
    loss.backward()
    assert loss.item() == 0.0
    assert x.grad.count_nonzero() == 0
    assert x.grad.isfinite().all()
    assert all(metric_share(m, nothing, shard.totals)[0].item() == 0.0 for m in found.metrics.values())


@EACH
def test_a_masked_row_beside_others_is_zero(name, actor, inputs):
    columns = random_batch(3)
    columns["mask"][2] = False
    columns["mask"][0, 0], columns["prepared"][0, 0] = True, False
    loss, _, gradient = run(name, actor, inputs, columns)
    assert loss[2].count_nonzero() == gradient[2].count_nonzero() == 0
    assert loss[0].count_nonzero() > 0


@EACH
def test_a_weight_that_is_the_same_on_a_row_multiplies_its_loss(name, actor, inputs):
    columns = random_batch(4)
    del columns["rollout_is_weights"]
    plain, _, gradient = run(name, actor, inputs, columns)
    weights = torch.tensor([0.0, 0.5, 1.0, 2.0, 3.5], dtype=torch.float64)[:, None]
    columns["rollout_is_weights"] = weights.expand(5, 6)
    loss, _, weighted_gradient = run(name, actor, inputs, columns)
    torch.testing.assert_close(loss, weights * plain, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(weighted_gradient, weights * gradient, rtol=1e-12, atol=0.0)


@EACH
def test_at_ratio_one_the_gradient_is_that_of_the_plain_policy_gradient(name, actor, inputs):
    """One advantage a row, so that losses of whole responses and of tokens agree; no token is chosen."""
    columns = random_batch(5)
    del columns["rollout_is_weights"]
    columns["old_log_prob"] = columns["log_prob"]
    columns["advantages"] = columns["advantages"][:, :1].expand(5, 6)
    columns["prepared"] = torch.zeros_like(columns["mask"])
    _, metrics, gradient = run(name, actor, inputs, columns)
    expected = torch.where(columns["mask"], -columns["advantages"], 0.0)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-14)
    assert all(metric.values[columns["mask"]].count_nonzero() == 0 for metric in metrics.values())


@EACH
def test_b13_a_group_without_spread_has_no_policy_gradient(name, actor, inputs):
    columns = random_batch(6)
    columns["advantages"] = torch.zeros_like(columns["advantages"])
    columns["old_log_prob"] = columns["log_prob"]
    assert run(name, actor, inputs, columns)[2].count_nonzero() == 0


@pytest.mark.parametrize("name", sorted(set(LOSSES) - STOPPED))
def test_gradcheck(name, actor, inputs):
    columns = random_batch(7)
    columns["advantages"] = columns["advantages"][:, :1].expand(5, 6).contiguous()
    columns["rollout_is_weights"] = columns["rollout_is_weights"][:, :1].expand(5, 6)
    aggregation = AGGREGATIONS[RECORDS[name].aggregation or "token-mean"]

    def loss(x):
        shard = inputs(**columns | {"log_prob": x})
        return aggregation(LOSSES[name](shard, actor()).token_loss, shard.response_mask, shard.totals)

    torch.autograd.gradcheck(loss, columns["log_prob"].clone().requires_grad_())


@EACH
def test_ppo_kl_is_the_mean_of_old_minus_new(name, actor, inputs):
    columns = random_batch(8)
    shard = inputs(**columns)
    share, _ = metric_share(LOSSES[name](shard, actor()).metrics["ppo_kl"], shard.response_mask, shard.totals)
    expected = (columns["old_log_prob"] - columns["log_prob"])[columns["mask"]].mean()
    assert share.item() == pytest.approx(expected.item(), rel=1e-12)
