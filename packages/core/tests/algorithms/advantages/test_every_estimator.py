"""What holds for every estimator of core, whatever it computes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core import builtins
from rl_core.algorithms.inputs import AdvantageInputs
from rl_core.plugins import Registry, Selection

CONFIG = SimpleNamespace(
    gamma=0.9,
    lam=0.95,
    norm_adv_by_std_in_grpo=True,
    gdpo_reward_keys=["x", "y"],
    gdpo_reward_weights=[1.0, 0.5],
)
REGISTRY = Registry(Selection())
REGISTRY.register_distribution("rl-core", "0", builtins)
NAMES = REGISTRY.names("advantage")
COLUMNS = ("old_log_probs", "sum_pi_squared")


def _batch(seed, height=8, width=6):
    """Random rows with observation spans, missing rewards and fully masked rows."""
    random = torch.Generator().manual_seed(seed)
    mask = torch.rand(height, width, generator=random) < 0.7
    mask[seed % height] = False
    rewards = (torch.rand(height, width, generator=random, dtype=torch.float64) * 4).round() / 4
    rewards[(seed + 3) % height, mask[(seed + 3) % height]] = float("nan")
    return AdvantageInputs(
        token_level_rewards=rewards,
        response_mask=mask,
        uid=np.array([f"p{row // 3}" for row in range(height)], dtype=object),
        values=torch.rand(height, width, generator=random, dtype=torch.float64),
        extras={
            "old_log_probs": -torch.rand(height, width, generator=random, dtype=torch.float64),
            "sum_pi_squared": torch.rand(height, width, generator=random, dtype=torch.float64),
            "reward_baselines": torch.rand(height, generator=random, dtype=torch.float64),
            "reward_extra/x": np.array([float(row % 3) for row in range(height)], dtype=object),
            "reward_extra/y": np.array([None if row == 1 else row * 0.3 for row in range(height)], dtype=object),
        },
    )


def _changed(inputs, tokens, rows=lambda column: column):
    """The same batch with every [B, T] column and every [B] column replaced."""
    extras = {name: tokens(column, name) if name in COLUMNS else rows(column) for name, column in inputs.extras.items()}
    return AdvantageInputs(
        token_level_rewards=tokens(inputs.token_level_rewards, "rewards"),
        response_mask=tokens(inputs.response_mask, "mask"),
        uid=rows(inputs.uid),
        values=tokens(inputs.values, "values"),
        extras=extras,
    )


def _run(name, inputs):
    return REGISTRY.load("advantage", name)(inputs, CONFIG)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000), garbage=st.sampled_from([float("nan"), float("inf"), 1e30]))
def test_masked_positions_and_padding_reach_nothing(name, seed, garbage):
    inputs = _batch(seed)
    expected = _run(name, inputs)

    def dirty(column, kind):
        if kind != "mask":
            column = torch.where(inputs.response_mask, column, garbage)
        padding = (
            torch.full((len(column), 2), garbage, dtype=column.dtype) if kind != "mask" else torch.zeros(8, 2).bool()
        )
        return torch.cat([column, padding], dim=1)

    for found, wanted in zip(_run(name, _changed(inputs, dirty)), expected, strict=True):
        assert torch.allclose(found[:, :6], wanted, atol=1e-12)
        assert found[:, 6:].count_nonzero() == 0
        assert found[:, :6][~inputs.response_mask].count_nonzero() == 0
        assert torch.isfinite(found).all()


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_the_order_of_rows_does_not_matter(name, seed, data):
    inputs = _batch(seed)
    order = data.draw(st.permutations(range(8)))
    permuted = _changed(inputs, lambda column, _: column[order], lambda column: column[order])
    for found, wanted in zip(_run(name, permuted), _run(name, inputs), strict=True):
        assert torch.allclose(found, wanted[order], atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_rows_without_a_reward_are_as_if_they_were_not_there(name, seed):
    inputs = _batch(seed)
    lost = torch.isnan(inputs.token_level_rewards).logical_and(inputs.response_mask).any(dim=1)
    lost |= ~inputs.response_mask.any(dim=1)
    rest = (~lost).nonzero().flatten().tolist()
    advantages, _ = _run(name, inputs)
    without, _ = _run(name, _changed(inputs, lambda column, _: column[rest], lambda column: column[rest]))
    assert advantages[lost].count_nonzero() == 0
    assert torch.allclose(advantages[rest], without, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_no_rows(name):
    inputs = _changed(_batch(0), lambda column, _: column[:0], lambda column: column[:0])
    assert _run(name, inputs)[0].shape == (0, 6)


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_widened(name):
    inputs = _changed(
        _batch(5),
        lambda column, kind: column if kind == "mask" else column.to(torch.bfloat16),
        lambda column: column.bfloat16() if isinstance(column, torch.Tensor) else column,
    )
    advantages, returns = _run(name, inputs)
    assert advantages.dtype == returns.dtype == torch.float32
