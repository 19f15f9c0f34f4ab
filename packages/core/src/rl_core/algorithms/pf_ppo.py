"""Drawing the rows of a batch again, by how reliable their rewards are: PF-PPO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from rl_core.algorithms.groups import group_index
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

BEST, OTHERS = 0.4, 0.1
"""Weights of ``max_random``: the best responses of a prompt, and each of the others."""


class PFPPOConfig(Protocol):
    """The keys of ``algorithm.pf_ppo``."""

    @property
    def reweight_method(self) -> str:
        """``pow``, ``max_min`` or ``max_random``."""
        ...

    @property
    def weight_pow(self) -> float:
        """Exponent of ``pow``, not negative."""
        ...


def resampled_rows(
    scores: Tensor, usable: Tensor, uid: np.ndarray, config: PFPPOConfig, seed: Sequence[int]
) -> NDArray[np.int64]:
    """Draw as many rows as there are, with replacement, with probabilities proportional to ``row_weights``.

    The same arguments always draw the same rows, on every machine.

    Degenerate input:
        no row has a weight (all rewards 0 with ``pow``, or none usable): every row once.
        missing reward or fully masked row: never drawn, unless no row has a weight.

    Args:
        scores: [B] float, reward of each row.
        usable: [B] bool, the row has a reward and a token.
        uid: [B] array naming the prompt of each row.
        config: method and exponent.
        seed: what the draw depends on, for example (trainer seed, step).

    Returns:
        [B] int64, row numbers in ascending order.

    Raises:
        ConfigError: the method is unknown, or the exponent negative.
        DataError: uid entries cannot be compared with each other.

    Source: Zhang et al. 2024, arXiv:2409.06957, policy filtration.
    """
    weights = row_weights(scores, usable, uid, config).numpy()
    if not weights.sum() > 0:
        return np.arange(len(weights), dtype=np.int64)
    drawn = np.random.default_rng(list(seed)).choice(len(weights), size=len(weights), p=weights / weights.sum())
    return np.sort(drawn).astype(np.int64)


def row_weights(scores: Tensor, usable: Tensor, uid: np.ndarray, config: PFPPOConfig) -> Tensor:
    """How often each row should be drawn, up to a factor.

    ``pow``: ``|R| ** weight_pow``, scaled by the largest |R| of the batch. ``max_min``: 1 for the best and the worst
    responses to a prompt, 0 for those between. ``max_random``: 0.4 for the best responses to a prompt, 0.1 for the
    others. Best and worst are sought among the responses to one prompt: over the batch they would be two rows. A prompt's
    only response is its best.

    Args:
        scores: [B] float.
        usable: [B] bool.
        uid: [B] array naming the prompt of each row.
        config: method and exponent.

    Returns:
        [B] float64 on the CPU, 0.0 where unusable.

    Raises:
        ConfigError: the method is unknown, or the exponent negative.
        DataError: uid entries cannot be compared with each other.
    """
    scores, usable = scores.double().cpu(), usable.cpu()
    if config.reweight_method == "pow":
        weights = _powers(torch.where(usable, scores, 0.0).abs(), config.weight_pow)
    elif config.reweight_method == "max_min":
        weights = (_is_extreme(scores, usable, uid, 1.0) | _is_extreme(scores, usable, uid, -1.0)).double()
    elif config.reweight_method == "max_random":
        weights = torch.where(_is_extreme(scores, usable, uid, 1.0), BEST, OTHERS).double()
    else:
        msg = f"algorithm.pf_ppo.reweight_method must be pow, max_min or max_random; found {config.reweight_method!r}."
        raise ConfigError(msg)
    return torch.where(usable, weights, 0.0)


def _powers(sizes: Tensor, exponent: float) -> Tensor:
    if not exponent >= 0:
        msg = f"algorithm.pf_ppo.weight_pow must not be negative; found {exponent}."
        raise ConfigError(msg)
    largest = sizes.max() if len(sizes) else sizes.sum()
    return (sizes / largest) ** exponent if largest > 0 else torch.zeros_like(sizes)


def _is_extreme(scores: Tensor, usable: Tensor, uid: np.ndarray, sign: float) -> Tensor:
    """[B] bool: no usable row of the same prompt has a larger ``sign * score``."""
    numbered, num_groups = group_index(uid)
    index = torch.as_tensor(numbered)
    signed = torch.where(usable, sign * scores, float("-inf"))
    best = signed.new_full((num_groups,), float("-inf")).scatter_reduce_(0, index, signed, "amax")
    return signed == best[index]
