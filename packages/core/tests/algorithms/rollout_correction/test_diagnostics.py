import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_core.algorithms.inputs import LossTotals
from rl_core.algorithms.rollout_correction.diagnostics import mismatch, rejection_shares, weight_shares
from rl_core.algorithms.rollout_correction.ratios import log_ratios
from rl_core.algorithms.rollout_correction.rejection import reject
from rl_core.algorithms.rollout_correction.weights import importance_weights

NAN = float("nan")
MASK = torch.tensor([[True, True], [True, False], [False, False]])
TRAINER = torch.tensor([[0.5, 0.25], [0.2, NAN], [NAN, NAN]]).log()
GENERATOR = torch.tensor([[0.25, 0.25], [0.4, NAN], [NAN, NAN]]).log()
TIS = SimpleNamespace(lower=None, upper=1.5)


def values(shares):
    return {name: float(value) for name, (value, _) in shares.items()}


def measured(trainer, generator, mask=MASK, totals=None):
    totals = LossTotals.of(mask, 1) if totals is None else totals
    return mismatch(trainer, generator, log_ratios(trainer, generator, mask), mask, totals)


def test_mismatch_by_hand():
    # Ratios 2, 1 | 0.5; means of log-probs: trainer log sqrt(1/8) and log 0.2, generator log 0.25 and log 0.4.
    found = values(measured(TRAINER, GENERATOR))
    log2 = math.log(2)
    assert found["kl"] == pytest.approx(0.0, abs=1e-7)
    assert found["k3_kl"] == pytest.approx((2 - 1 - log2 + 0 + 0.5 - 1 + log2) / 3)
    assert found["chi2_token"] == pytest.approx((4 + 1 + 0.25) / 3 - 1)
    assert found["chi2_seq"] == pytest.approx((4 + 0.25) / 2 - 1)
    assert found["training_ppl"] == pytest.approx((math.sqrt(8) + 5) / 2)
    assert found["rollout_ppl"] == pytest.approx((4 + 2.5) / 2)
    assert found["training_log_ppl"] == pytest.approx((math.log(8) / 2 + math.log(5)) / 2)
    assert found["rollout_log_ppl"] == pytest.approx((math.log(4) + math.log(2.5)) / 2)
    assert found["log_ppl_diff"] == pytest.approx((-log2 / 2 + log2) / 2)
    assert found["log_ppl_abs_diff"] == pytest.approx((log2 / 2 + log2) / 2)
    assert (found["log_ppl_diff_max"], found["log_ppl_diff_min"]) == pytest.approx((log2, -log2 / 2))
    assert found["ppl_ratio"] == pytest.approx((1 / math.sqrt(2) + 2) / 2)


def test_agreement_is_zero():
    found = values(measured(TRAINER, TRAINER))
    assert {
        name: found[name] for name in ("kl", "k3_kl", "chi2_token", "chi2_seq", "log_ppl_abs_diff")
    } == dict.fromkeys(("kl", "k3_kl", "chi2_token", "chi2_seq", "log_ppl_abs_diff"), 0.0)
    assert found["ppl_ratio"] == 1.0


@pytest.mark.parametrize("extreme", [-math.inf, -1e30, 0.0])
def test_everything_stays_finite(extreme):
    shares = measured(torch.full((2, 3), extreme), torch.full((2, 3), -50.0), torch.ones(2, 3).bool())
    assert all(math.isfinite(value) for value in values(shares).values())


def test_no_token_at_all():
    none = torch.zeros(2, 3).bool()
    found = values(measured(torch.full((2, 3), NAN), torch.full((2, 3), NAN), none))
    assert set(found.values()) == {0.0}
    assert "log_ppl_diff_max" not in found


def test_weights_by_hand():
    ratio = log_ratios(TRAINER, GENERATOR, MASK)
    totals = LossTotals.of(MASK, 1)
    found = values(weight_shares(importance_weights(ratio, MASK, "token", TIS), MASK, TIS, totals))
    assert found["rollout_is_mean"] == pytest.approx((1.5 + 1 + 0.5) / 3)
    assert (found["rollout_is_max"], found["rollout_is_min"]) == pytest.approx((1.5, 0.5))
    assert found["rollout_is_seq_mean"] == pytest.approx((1.25 + 0.5) / 2)
    assert (found["rollout_is_seq_max"], found["rollout_is_seq_min"]) == pytest.approx((1.25, 0.5))
    assert found["rollout_is_ratio_fraction_high"] == pytest.approx(1 / 3)
    assert found["rollout_is_ratio_fraction_low"] == pytest.approx(1 / 3)
    assert "rollout_is_oob_ratio" not in found
    iced = SimpleNamespace(lower=0.75, upper=1.5)
    found = values(weight_shares(importance_weights(ratio, MASK, "token", iced), MASK, iced, totals))
    assert found["rollout_is_oob_ratio"] == pytest.approx(2 / 3)
    assert found["rollout_is_mean"] == pytest.approx(1 / 3)


def test_rejections_by_hand():
    rules = [SimpleNamespace(scope="token", estimator="k1", lower=0.4, upper=1.5)]
    rules.append(SimpleNamespace(scope="seq_max", estimator="k2", lower=None, upper=1.0))
    rejected, outcomes = reject(log_ratios(TRAINER, GENERATOR, MASK), MASK, rules)
    found = values(rejection_shares(rejected, outcomes, MASK, LossTotals.of(MASK, 1)))
    assert found["rollout_rs_masked_fraction"] == pytest.approx(1 / 3)
    assert found["rollout_rs_seq_masked_fraction"] == 0.5
    assert found["rollout_rs_token_k1_fraction_high"] == pytest.approx(1 / 3)
    assert found["rollout_rs_token_k1_fraction_low"] == 0.0
    assert found["rollout_rs_seq_max_k2_masked_fraction"] == 0.0
    assert found["rollout_rs_seq_max_k2_mean"] == pytest.approx(math.log(2) ** 2 / 2)


@given(st.integers(0, 2**31), st.integers(1, 5))
def test_shares_add_up_over_any_cut(seed, cut):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(6, 4, generator=generator) < 0.6
    trainer, rollout = (-torch.rand(6, 4, generator=generator) * 4 for _ in range(2))
    totals = LossTotals.of(mask, 4)
    rules = [SimpleNamespace(scope="seq_mean", estimator="k3", lower=None, upper=0.5)]

    def shares(rows):
        m = mask[rows]
        ratio = log_ratios(trainer[rows], rollout[rows], m)
        found = importance_weights(ratio, m, "sequence", TIS)
        rejected, outcomes = reject(ratio, m, rules)
        return (
            measured(trainer[rows], rollout[rows], m, totals)
            | weight_shares(found, m, TIS, totals)
            | rejection_shares(rejected, outcomes, m, totals)
        )

    whole, parts = shares(slice(None)), [shares(slice(0, cut)), shares(slice(cut, None))]
    for name, (value, reduce) in whole.items():
        pieces = [float(part[name][0]) for part in parts if name in part]
        combined = {"sum": sum, "max": max, "min": min}[reduce](pieces)
        assert combined == pytest.approx(float(value), rel=1e-9, abs=1e-12), name
