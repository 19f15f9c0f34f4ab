"""What the tests of the policy losses share: inputs from plain lists, the actor's keys, a comparison with plain Python."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from rl_core.algorithms.inputs import LossTotals, PolicyLossInputs

ACTOR = {
    "clip_ratio": 0.2,
    "clip_ratio_low": None,
    "clip_ratio_high": None,
    "clip_ratio_c": 3.0,
    "tau_pos": 1.0,
    "tau_neg": 1.05,
}
POLICY_LOSS = {
    "clip_cov_ratio": 2e-4,
    "clip_cov_lb": 1.0,
    "clip_cov_ub": 5.0,
    "kl_cov_ratio": 2e-4,
    "ppo_kl_coef": 0.1,
    "dro_beta": 0.5,
}


@dataclass(frozen=True)
class Row:
    """The masked-in tokens of one response, as Python floats."""

    log_prob: list[float]
    old_log_prob: list[float]
    advantages: list[float]
    weights: list[float]
    prepared: list[bool]

    @property
    def log_ratio(self):
        return [new - old for new, old in zip(self.log_prob, self.old_log_prob, strict=True)]

    @property
    def ratio(self):
        return [math.exp(x) for x in self.log_ratio]


@pytest.fixture(scope="session")
def actor():
    """``actor(key=value)``: the ``actor`` section as the losses see it."""

    def make(**changes):
        own = {key: changes.pop(key, value) for key, value in POLICY_LOSS.items()}
        return SimpleNamespace(**{**ACTOR, **changes}, policy_loss=SimpleNamespace(**own))

    return make


@pytest.fixture(scope="session")
def inputs():
    """``inputs(log_prob, old_log_prob, advantages, mask=None, ...)`` from tensors, or from lists that are one row."""

    def make(log_prob, old_log_prob, advantages, mask=None, **more):
        log_prob, old_log_prob, advantages = (
            x if isinstance(x, torch.Tensor) else torch.tensor([x], dtype=torch.float64)
            for x in (log_prob, old_log_prob, advantages)
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

    return make


@pytest.fixture(scope="session")
def same_as_slow(inputs):
    """``same_as_slow(loss, config, slow, seed)``: ``slow(Row) -> [loss of each token]``, on random rows with holes."""

    def compare(loss, config, slow, seed):
        rng = torch.Generator().manual_seed(seed)
        size = torch.randint(1, 6, (2,), generator=rng).tolist()
        old, step, advantages = torch.randn(3, *size, dtype=torch.float64, generator=rng)
        old = -old.abs() - 0.01
        log_prob = (old + step).clamp(max=-0.001)
        weights = torch.rand(size, dtype=torch.float64, generator=rng) * 2
        mask, prepared = torch.rand(2, *size, generator=rng) < 0.6
        expected = torch.zeros(size, dtype=torch.float64)
        for b in range(size[0]):
            here = mask[b]
            columns = (log_prob, old, advantages, weights, prepared)
            losses = slow(Row(*(column[b][here].tolist() for column in columns)))
            expected[b][here] = torch.tensor(losses, dtype=torch.float64)
        x = log_prob.clone().requires_grad_()
        found = loss(inputs(x, old, advantages, mask, rollout_is_weights=weights, prepared=prepared), config)
        torch.testing.assert_close(found.token_loss, expected, rtol=1e-10, atol=1e-10)
        return x, found

    return compare
