"""The clipped value loss of PPO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from rl_core.algorithms.inputs import TokenMetric, ValueLossOutputs
from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import ValueLossInputs


class ValueLossConfig(Protocol):
    """The key of ``critic`` that the value loss reads."""

    @property
    def cliprange_value(self) -> float:
        """How far an estimate may move from the old one within a step and still gain, in units of the return."""
        ...


def value_loss(inputs: ValueLossInputs, config: ValueLossConfig) -> ValueLossOutputs:
    """Half the squared error of each token's value, the larger of the plain and the clipped one.

    ``max((v - R)**2, (clip(v, v_old - c, v_old + c) - R)**2) / 2``

    Args:
        inputs: one shard. No gradient flows but through ``values``.
        config: ``cliprange_value``; infinity switches clipping off.

    Returns:
        The loss of each token, and per token: ``vf_clipfrac`` (the clipped branch is the larger), ``vpred_mean`` (the
        value).

    Raises:
        ConfigError: ``cliprange_value`` is not above 0.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 9, with the clipping of its reference implementation (not in
        the paper).
    """
    limit = config.cliprange_value
    if not limit > 0:
        msg = f"critic.cliprange_value must be above 0; found {limit}. Use a large number for no clipping."
        raise ConfigError(msg)
    mask = inputs.response_mask
    values = fill_masked(widen(inputs.values), mask)
    old_values = fill_masked(widen(inputs.old_values.detach()), mask)
    returns = fill_masked(widen(inputs.returns.detach()), mask)

    plain = (values - returns).square()
    # Clamped to bounds, not by a difference: a value within them stays what it is to the last bit, so that the
    # fraction of clipped tokens does not depend on rounding.
    clipped = (values.clamp(old_values - limit, old_values + limit) - returns).square()
    metrics = {
        "vf_clipfrac": TokenMetric((clipped > plain).detach()),
        "vpred_mean": TokenMetric(values.detach()),
    }
    return ValueLossOutputs(0.5 * torch.maximum(plain, clipped), metrics)
