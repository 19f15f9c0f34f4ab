"""Rewards summed towards the end of a response."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_core.algorithms.checks import require_mask, require_same_shape
from rl_core.algorithms.masks import fill_masked
from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError


@torch.no_grad()
def returns_to_go(rewards: Tensor, response_mask: Tensor, gamma: float = 1.0) -> Tensor:
    """Discounted sum of the rewards from each token to the end of its response.

    ``G_t = r_t + gamma * G_{t+1}``, where t + 1 is the row's next masked-in token: what the environment said in between
    (observations, tool output) is stepped over and costs no discount.

    Args:
        rewards: [B, T] float; one at a masked position is ignored.
        response_mask: [B, T] bool, True where the policy emitted the token.
        gamma: discount per token, in [0, 1].

    Returns:
        [B, T] float32 or float64, 0.0 where masked.

    Raises:
        ShapeError: shapes differ, or the mask is not bool of rank 2.
        ConfigError: gamma lies outside [0, 1].
    """
    require_mask(response_mask)
    require_same_shape("rewards", rewards, "response_mask", response_mask)
    if not 0.0 <= gamma <= 1.0:
        msg = f"algorithm.gamma must lie in [0, 1]; found {gamma}."
        raise ConfigError(msg)
    # [T, B]: a step of all rows lies together, which is several times as fast for a large batch.
    steps, emitted = fill_masked(widen(rewards), response_mask).t().contiguous(), response_mask.t().contiguous()
    returns = torch.empty_like(steps)
    running = steps.new_zeros(len(rewards))
    for t in reversed(range(len(steps))):
        running = torch.where(emitted[t], steps[t] + gamma * running, running)
        returns[t] = running
    return fill_masked(returns.t().contiguous(), response_mask)
