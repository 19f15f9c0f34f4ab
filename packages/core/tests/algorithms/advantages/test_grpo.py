import statistics
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.advantages.grpo import grpo
from rl_core.algorithms.aggregation import token_mean
from rl_core.algorithms.inputs import AdvantageInputs, LossTotals, PolicyLossInputs
from rl_core.algorithms.kl import kl_penalty
from rl_core.algorithms.policy_losses.vanilla import vanilla
from rl_core.errors import DataError

NAN, INF = float("nan"), float("inf")
GRPO, DR_GRPO = SimpleNamespace(norm_adv_by_std_in_grpo=True), SimpleNamespace(norm_adv_by_std_in_grpo=False)


def _inputs(rewards, uid, lengths=None, width=4, garbage=0.0, dtype=torch.float32):
    """Outcome rewards on the last token of each row."""
    lengths = torch.tensor(lengths or [1] * len(rewards))
    mask = torch.arange(width) < lengths[:, None]
    token_level = torch.where(mask, torch.zeros((), dtype=dtype), garbage)
    token_level[torch.arange(len(rewards)), lengths - 1] = torch.tensor(rewards, dtype=dtype)
    return AdvantageInputs(token_level_rewards=token_level, response_mask=mask, uid=np.array(uid, dtype=object))


def _rows(advantages, mask):
    """The one advantage of each row, after checking that the row holds no other."""
    for row, keep in zip(advantages, mask, strict=True):
        assert row[keep].unique().numel() <= 1
        assert row[~keep].count_nonzero() == 0
    return [row[keep][0].item() if keep.any() else 0.0 for row, keep in zip(advantages, mask, strict=True)]


B13 = _inputs([1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0], list("aaaabbbb"), [1, 2, 3, 4] * 2)


def test_b13_equal_rewards_are_exactly_zero_and_others_are_normalised():
    advantages, returns = grpo(B13, GRPO)
    rows = _rows(advantages, B13.response_mask)
    assert rows[:4] == [0.0, 0.0, 0.0, 0.0]
    assert rows[4:] == pytest.approx([1.499997, -0.499999, -0.499999, -0.499999], abs=1e-6)
    assert torch.equal(returns, advantages)
    assert returns.data_ptr() != advantages.data_ptr()


def test_b13_dr_grpo_subtracts_the_mean_only():
    rows = _rows(grpo(B13, DR_GRPO)[0], B13.response_mask)
    assert rows == [0.0, 0.0, 0.0, 0.0, 0.75, -0.25, -0.25, -0.25]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("config", [GRPO, DR_GRPO])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, -7.7, 1e6])
def test_b13_equal_rewards_are_exactly_zero_whatever_their_mean_rounds_to(dtype, config, reward):
    inputs = _inputs([reward] * 7, ["p"] * 7, dtype=dtype)
    assert grpo(inputs, config)[0].count_nonzero() == 0


def test_b13_a_group_without_spread_still_gets_its_kl_gradient():
    mask = B13.response_mask
    totals = LossTotals.of(mask, 4)
    log_prob = torch.full(mask.shape, -1.0, requires_grad=True)
    advantages, _ = grpo(B13, GRPO)
    config = SimpleNamespace(clip_ratio=0.2, clip_ratio_low=None, clip_ratio_high=None, clip_ratio_c=3.0)
    policy = vanilla(
        PolicyLossInputs(
            log_prob=log_prob,
            old_log_prob=log_prob.detach(),
            advantages=advantages,
            response_mask=mask,
            totals=totals,
        ),
        config,
    )
    kl = kl_penalty(log_prob, torch.full(mask.shape, -1.5), "k3")
    (without,) = torch.autograd.grad(token_mean(policy.token_loss, mask, totals), log_prob, retain_graph=True)
    loss = token_mean(policy.token_loss, mask, totals) + 0.1 * token_mean(kl, mask, totals)
    (with_kl,) = torch.autograd.grad(loss, log_prob)
    group_a = mask & (torch.arange(8) < 4)[:, None]
    assert without[group_a].count_nonzero() == 0
    assert (with_kl[group_a] > 0).all()


def test_b15_a_group_of_one_keeps_its_reward():
    inputs = _inputs([0.7, 1.0, 0.0, 1.0], list("abbb"))
    rows = _rows(grpo(inputs, GRPO)[0], inputs.response_mask)
    assert rows == pytest.approx([0.6999993, 0.577349, -1.154699, 0.577349], abs=1e-6)
    rows = _rows(grpo(inputs, DR_GRPO)[0], inputs.response_mask)
    assert rows == pytest.approx([0.7, 1 / 3, -2 / 3, 1 / 3], abs=1e-6)


@pytest.mark.parametrize("missing", [NAN, INF, -INF])
def test_b33_a_missing_reward_leaves_its_group(missing):
    inputs = _inputs([1.0, missing, 0.0, 1.0], list("pppp"), [1, 2, 3, 4])
    rows = _rows(grpo(inputs, GRPO)[0], inputs.response_mask)
    assert rows == pytest.approx([0.577349, 0.0, -1.154699, 0.577349], abs=1e-6)


def test_b33_a_group_in_which_every_reward_is_missing_is_zero():
    advantages, _ = grpo(_inputs([NAN, NAN, 1.0, 0.0], list("ppqq")), GRPO)
    assert advantages[:2].count_nonzero() == 0
    assert advantages[2:, 0].tolist() == pytest.approx([0.707106, -0.707106], abs=1e-5)


def test_a_row_left_alone_by_missing_rewards_is_a_group_of_one():
    advantages, _ = grpo(_inputs([0.7, NAN], list("pp")), GRPO)
    assert advantages[:, 0].tolist() == pytest.approx([0.6999993, 0.0], abs=1e-6)


def test_a_fully_masked_row_does_not_shift_its_group():
    inputs = _inputs([1.0, 5.0, 0.0, 1.0], list("pppp"))
    mask = inputs.response_mask & torch.tensor([True, False, True, True])[:, None]
    masked = AdvantageInputs(token_level_rewards=inputs.token_level_rewards, response_mask=mask, uid=inputs.uid)
    assert _rows(grpo(masked, GRPO)[0], mask) == pytest.approx([0.577349, 0.0, -1.154699, 0.577349], abs=1e-6)


def test_rewards_along_the_row_are_summed():
    mask = torch.ones(2, 3, dtype=torch.bool)
    rewards = torch.tensor([[-0.1, 0.1, 1.0], [0.0, 0.0, 0.0]])
    inputs = AdvantageInputs(token_level_rewards=rewards, response_mask=mask, uid=np.array(["p", "p"]))
    assert _rows(grpo(inputs, DR_GRPO)[0], mask) == pytest.approx([0.5, -0.5])


def test_no_rows():
    inputs = AdvantageInputs(
        token_level_rewards=torch.zeros(0, 3), response_mask=torch.zeros(0, 3).bool(), uid=np.array([], dtype=object)
    )
    assert grpo(inputs, GRPO)[0].shape == (0, 3)


def test_missing_uids_are_refused():
    inputs = AdvantageInputs(token_level_rewards=torch.zeros(1, 1), response_mask=torch.ones(1, 1).bool())
    with pytest.raises(DataError, match="uid"):
        grpo(inputs, GRPO)


def _slow(rewards, uid, normalise):
    groups = {}
    for reward, name in zip(rewards, uid, strict=True):
        groups.setdefault(name, []).append(reward)
    advantages = []
    for reward, name in zip(rewards, uid, strict=True):
        group = groups[name]
        if len(group) == 1:
            mean, std = 0.0, 1.0
        else:
            mean, std = statistics.fmean(group), statistics.stdev(group)
        advantages.append((reward - mean) / (std + 1e-6) if normalise else reward - mean)
    return advantages


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.25, 1.0, -2.0]), st.integers(1, 4)),
        min_size=1,
        max_size=10,
    ),
    normalise=st.booleans(),
    extra=st.integers(0, 3),
    garbage=st.sampled_from([0.0, NAN, INF, 1e30]),
    data=st.data(),
)
def test_any_groups_garbage_padding_and_order_like_plain_python(rows, normalise, extra, garbage, data):
    expected = _slow([r for _, r, _ in rows], [u for u, _, _ in rows], normalise)
    order = data.draw(st.permutations(range(len(rows))))
    uid, rewards, lengths = zip(*[rows[i] for i in order], strict=True)
    inputs = _inputs(list(rewards), list(uid), list(lengths), 4 + extra, garbage, torch.float64)
    advantages, _ = grpo(inputs, SimpleNamespace(norm_adv_by_std_in_grpo=normalise))
    found = _rows(advantages, inputs.response_mask)
    assert found == pytest.approx([expected[i] for i in order], abs=1e-10)
