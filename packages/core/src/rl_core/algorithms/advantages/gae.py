"""Generalized advantage estimation, for PPO with a critic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from rl_core.algorithms.checks import require_mask, require_same_shape
from rl_core.algorithms.masks import fill_masked, masked_whiten
from rl_core.algorithms.precision import widen
from rl_core.algorithms.rewards import missing_rewards
from rl_core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs


class GAEConfig(Protocol):
    """The keys of ``algorithm`` that GAE reads."""

    @property
    def gamma(self) -> float:
        """Discount per token, in [0, 1]."""
        ...

    @property
    def lam(self) -> float:
        """Trace decay per token, in [0, 1]."""
        ...


@torch.no_grad()
def gae(inputs: AdvantageInputs, config: GAEConfig) -> tuple[Tensor, Tensor]:
    """Whitened GAE advantages, and the returns the critic learns.

    The returns are taken before whitening. Whitening runs over all masked-in tokens of the batch.

    Degenerate input:
        missing reward (NaN): the row gets advantage 0 and returns equal to its values, so neither model learns from
        it, and it enters no statistic.
        fully masked row: 0 everywhere.
        one token in the batch, or all advantages equal: exactly 0 after whitening.

    Args:
        inputs: the whole batch; ``values`` are needed.
        config: ``gamma`` and ``lam``.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T], 0.0 where masked.

    Raises:
        ConfigError: there are no values, or gamma or lam lies outside [0, 1].
        DataError: a value at a masked-in position is not finite.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16.
    """
    if inputs.values is None:
        msg = "gae needs the critic's values; found none. Enable the critic, or choose a group estimator such as grpo."
        raise ConfigError(msg)
    mask = inputs.response_mask
    present = mask & ~missing_rewards(inputs.token_level_rewards, mask).unsqueeze(1)
    advantages, returns = generalized_advantages(
        inputs.token_level_rewards, inputs.values, present, gamma=config.gamma, lam=config.lam
    )
    returns = torch.where(present, returns, fill_masked(widen(inputs.values), mask))
    return masked_whiten(advantages, present), returns


@torch.no_grad()
def generalized_advantages(
    rewards: Tensor, values: Tensor, response_mask: Tensor, *, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Generalized advantages over response tokens, not whitened.

    Runs right to left. Masked-out positions (padding, tool output) are stepped over: the value and the advantage of
    the next trained token carry across them unchanged. Nothing is bootstrapped past the last trained token.

    Args:
        rewards: [B, T] float, reward credited at each response token; one at a masked position is ignored.
        values: [B, T] float, critic estimate before each token is emitted.
        response_mask: [B, T] bool, True where the policy emitted the token.
        gamma: discount per token, in [0, 1].
        lam: trace decay per token, in [0, 1]; 0 is one-step TD, 1 is Monte Carlo minus baseline.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T] = advantages + values, same mask.

    Raises:
        ShapeError: the three tensors differ in shape, or the mask is not bool of rank 2.
        ConfigError: gamma or lam lies outside [0, 1].
        DataError: a value at a masked-in position is not finite.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16.
    """
    require_mask(response_mask)
    require_same_shape("rewards", rewards, "response_mask", response_mask)
    require_same_shape("values", values, "response_mask", response_mask)
    _require_finite_values(values, response_mask)
    _require_unit_interval("gamma", gamma)
    _require_unit_interval("lam", lam)
    rewards, values = fill_masked(widen(rewards), response_mask), fill_masked(widen(values), response_mask)
    dtype = torch.promote_types(rewards.dtype, values.dtype)
    # [T, B]: a step of all rows lies together, which is several times as fast for a large batch.
    reward, value, emitted = (x.t().contiguous() for x in (rewards.to(dtype), values.to(dtype), response_mask))
    by_step = torch.empty_like(reward)
    next_value = reward.new_zeros(len(rewards))
    next_advantage = next_value
    for t in reversed(range(len(reward))):
        delta = reward[t] + gamma * next_value - value[t]
        next_advantage = torch.where(emitted[t], delta + gamma * lam * next_advantage, next_advantage)
        next_value = torch.where(emitted[t], value[t], next_value)
        by_step[t] = next_advantage
    advantages = fill_masked(by_step.t().contiguous(), response_mask)
    return advantages, advantages + values


def _require_unit_interval(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        msg = f"algorithm.{name} must lie in [0, 1]; found {value}."
        raise ConfigError(msg)


def _require_finite_values(values: Tensor, response_mask: Tensor) -> None:
    broken = (~torch.isfinite(values) & response_mask).any(dim=1)
    if bool(broken.any()):
        rows = broken.nonzero().flatten().tolist()
        msg = (
            f"the critic's values must be finite; found NaN or infinity in {len(rows)} of {len(values)} rows, first in "
            f"row {rows[0]}. The critic has diverged: lower critic.optim.lr or resume from an earlier checkpoint."
        )
        raise DataError(msg)
