"""Tokens that the policy did not emit (tool results, observations, padding) reach no advantage, no loss, no gradient.

Every estimator and every policy loss that core registers is taken through it; a new one is covered when it has a record.
"""

from __future__ import annotations

from dataclasses import fields, replace
from importlib import import_module

import numpy as np
import pytest
import torch
from rl_core.algorithms.inputs import AdvantageInputs, LossTotals, PolicyLossInputs, PrepareInputs, ValueLossInputs
from rl_core.algorithms.token_metrics import metric_share
from rl_core.algorithms.value_loss import value_loss
from rl_core.builtins import rl_plugins
from rl_core.config.actor import ActorConfig, PolicyLossConfig
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.config.critic import CriticConfig
from rl_core.plugins.records import AdvantageRecord, PolicyLossRecord
from rl_dataproto import object_array

NAN, INF = float("nan"), float("inf")
GARBAGE = [NAN, INF, -INF, 1e9, -1e9]
ROWS = [
    "PPPoooPP",  # a tool answers within
    "PooPPo..",  # ... and the last observation is never answered
    "ooPPPPP.",  # a text that was put into the model's mouth
    "PoPoPoPo",
    "PPP.....",
    "oooo....",  # nothing left to learn from
]
"""P: emitted by the policy; o: observation; .: padding."""

MASK = torch.tensor([[letter == "P" for letter in row] for row in ROWS])
ALGORITHM = AlgorithmConfig(gamma=0.9, lam=0.8, gdpo_reward_keys=["style", "truth"])
COVARIANCE = {"clip_cov_ratio": 0.2, "clip_cov_lb": -9.0, "clip_cov_ub": 9.0, "kl_cov_ratio": 0.3}
ACTOR = ActorConfig(policy_loss=PolicyLossConfig(dro_beta=0.3, **COVARIANCE))

ADVANTAGES = {record.name: record for record in rl_plugins() if isinstance(record, AdvantageRecord)}
LOSSES = {record.name: record for record in rl_plugins() if isinstance(record, PolicyLossRecord)}
BY_POSITION = {"optimal_token_baseline"}
"""Estimators that compare responses at the same position, observations included: ``tir_...`` is the other one."""


def load(target):
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def noise(seed, low=-2.0, high=0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(MASK.shape, generator=generator, dtype=torch.float64) * (high - low) + low


def rewards():
    """An outcome on the last trained token, and a smaller one on an earlier token of some rows."""
    column = torch.zeros(MASK.shape, dtype=torch.float64)
    for row, (outcome, places) in enumerate(zip([1.0, 0.0, 0.5, 1.0, 0.0, 0.0], MASK, strict=True)):
        trained = places.nonzero().flatten()
        if len(trained):
            column[row, trained[-1]] = outcome
            column[row, trained[0]] += 0.1 * row
    return column


def advantage_inputs():
    return AdvantageInputs(
        token_level_rewards=rewards(),
        response_mask=MASK,
        uid=np.array(list("aaabbb")),
        values=noise(1, 0.0, 1.0),
        extras={
            "old_log_probs": noise(2),
            "rollout_log_probs": noise(3),
            "sum_pi_squared": noise(4, 0.1, 1.0),
            "rollout_is_weights": noise(5, 0.5, 2.0),
            "rm_scores": noise(6, -1.0, 1.0),
            "reward_baselines": torch.tensor([0.2, 0.2, 0.2, 0.7, 0.7, 0.7], dtype=torch.float64),
            "reward_extra/style": object_array([1.0, 0.5, 0.0, 0.25, 1.0, 0.0]),
            "reward_extra/truth": object_array([0, 1, 1, 0, 1, 0]),
        },
    )


def is_per_token(column):
    return isinstance(column, torch.Tensor) and column.shape == MASK.shape and column.dtype != torch.bool


def polluted(value, garbage):
    """``value`` with ``garbage`` at every masked position."""
    return torch.where(MASK, value, garbage) if is_per_token(value) else value


def pollute(inputs, garbage):
    """The record with ``garbage`` at the masked positions of all its columns."""
    columns = {field.name: polluted(getattr(inputs, field.name), garbage) for field in fields(inputs)}
    if "extras" in columns:
        columns["extras"] = {name: polluted(column, garbage) for name, column in columns["extras"].items()}
    return replace(inputs, **columns)


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("name", ADVANTAGES)
def test_nothing_at_an_observation_reaches_an_advantage(name, garbage):
    estimate = load(ADVANTAGES[name].target)
    clean = estimate(advantage_inputs(), ALGORITHM)
    dirty = estimate(pollute(advantage_inputs(), garbage), ALGORITHM)
    for expected, found in zip(clean, dirty, strict=True):
        assert torch.isfinite(expected).all()
        assert torch.equal(found, expected)
        assert torch.equal(found[~MASK], torch.zeros_like(found[~MASK]))
    assert bool((clean[0] != 0).any()), "an estimator that gives 0 everywhere would pass whatever it read"


def squeezed(column):
    """[B, T]: trained tokens moved to the front, the rest 0."""
    result = torch.zeros_like(column)
    for row, places in enumerate(MASK):
        result[row, : int(places.sum())] = column[row, places]
    return result


@pytest.mark.parametrize("name", sorted(ADVANTAGES.keys() - BY_POSITION))
def test_advantages_are_those_of_the_same_tokens_without_observations(name):
    """Returns pass over an observation: it neither ends the episode, nor discounts, nor is bootstrapped from."""
    inputs = advantage_inputs()
    extras = {key: squeezed(column) if is_per_token(column) else column for key, column in inputs.extras.items()}
    without = replace(
        inputs,
        token_level_rewards=squeezed(inputs.token_level_rewards),
        values=squeezed(inputs.values),
        response_mask=squeezed(MASK),
        extras=extras,
    )
    estimate = load(ADVANTAGES[name].target)
    for found, expected in zip(estimate(inputs, ALGORITHM), estimate(without, ALGORITHM), strict=True):
        torch.testing.assert_close(squeezed(found), expected, rtol=1e-12, atol=1e-12)


def loss_inputs(record):
    old, advantages = noise(11), noise(12, -1.0, 1.0)
    prepared = None
    if record.prepare is not None:
        whole = PrepareInputs(old_log_prob=old, advantages=advantages, response_mask=MASK, seed=(1, 2))
        prepared = load(record.prepare)(whole, ACTOR)
    return PolicyLossInputs(
        log_prob=noise(13),
        old_log_prob=old,
        advantages=advantages,
        response_mask=MASK,
        totals=LossTotals.of(MASK, MASK.shape[1]),
        rollout_is_weights=noise(14, 0.5, 2.0),
        rollout_log_prob=noise(15),
        ref_log_prob=noise(16),
        entropy=noise(17, 0.0, 2.0),
        prepared=prepared,
    )


def evaluate(function, inputs, leaf, config):
    """Token losses, gradient, and the share of each metric."""
    learned = getattr(inputs, leaf).clone().requires_grad_()
    outputs = function(replace(inputs, **{leaf: learned}), config)
    (gradient,) = torch.autograd.grad(outputs.token_loss.sum(), learned)
    shares = {name: metric_share(metric, MASK, inputs.totals) for name, metric in outputs.metrics.items()}
    return outputs.token_loss.detach(), gradient, shares


def check_loss(function, inputs, leaf, config, garbage):
    clean = evaluate(function, inputs, leaf, config)
    dirty = evaluate(function, pollute(inputs, garbage), leaf, config)
    for expected, found in zip(clean[:2], dirty[:2], strict=True):
        assert torch.isfinite(expected).all()
        assert torch.equal(found, expected)
        assert torch.equal(found[~MASK], torch.zeros_like(found[~MASK]))
    assert bool((clean[1] != 0).any())
    assert {name: share and (float(share[0]), share[1]) for name, share in dirty[2].items()} == {
        name: share and (float(share[0]), share[1]) for name, share in clean[2].items()
    }


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("name", LOSSES)
def test_nothing_at_an_observation_reaches_a_policy_loss(name, garbage):
    check_loss(load(LOSSES[name].target), loss_inputs(LOSSES[name]), "log_prob", ACTOR, garbage)


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("name", [name for name, record in LOSSES.items() if record.prepare])
def test_nothing_at_an_observation_is_chosen_by_a_policy_loss(name, garbage):
    whole = PrepareInputs(old_log_prob=noise(11), advantages=noise(12, -1.0, 1.0), response_mask=MASK, seed=(1, 2))
    prepare = load(LOSSES[name].prepare)
    clean, dirty = prepare(whole, ACTOR), prepare(pollute(whole, garbage), ACTOR)
    assert torch.equal(clean[MASK], dirty[MASK])


@pytest.mark.parametrize("garbage", GARBAGE)
def test_nothing_at_an_observation_reaches_the_value_loss(garbage):
    inputs = ValueLossInputs(
        values=noise(21),
        old_values=noise(22),
        returns=noise(23),
        response_mask=MASK,
        totals=LossTotals.of(MASK, MASK.shape[1]),
    )
    check_loss(value_loss, inputs, "values", CriticConfig(), garbage)
