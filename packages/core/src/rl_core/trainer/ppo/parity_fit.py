"""Which sampling temperature would explain a gap: the trainer's distribution, re-scaled until it fits the generator's.

With inverse temperatures in the proportion ``b`` the generator's log-prob of a token is ``b t - K(b)``, t and p the trainer's
and ``K(b) = log sum p^b``. That sum is not reported, but K is 0 at b = 1, its slope there is minus the entropy H, its value at
b = 0 the log of the vocabulary, and at b = 2 the log of the sum of squared probabilities. Above 1, K is taken for that of a
``-log p`` with a gamma distribution, ``-H / s log(1 + s (b - 1))``; below 1 for the cubic through what is known. Where only
entropies are there, the variance of all the ``log p`` that were drawn stands for the value at b = 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.trainer.ppo.parity_tokens import ParityTokens

_MOST_TOKENS: Final = 100_000
"""A fit to so many, evenly spread, is as good as one to all."""
_RANGE: Final = (0.05, 20.0)
_POINTS: Final = 41
_ROUNDS: Final = 4


@dataclass(frozen=True, slots=True)
class TemperatureFit:
    """The best re-scaling.

    Attributes:
        ratio: trainer's temperature over the generator's; 1 where re-scaling explains nothing.
        share: of the squared gap that is gone then, 0 to 1.
        is_measured: whether entropies were there. Without, the slope of the gap over the trainer's log-prob stands for
            ``ratio - 1``; it is too close to 0 where entropies vary.
    """

    ratio: float
    share: float
    is_measured: bool


def fit_temperature(tokens: ParityTokens) -> TemperatureFit:
    """Fit ``tokens``, all with finite log-probs; needs a few of them to mean anything."""
    if len(tokens) > _MOST_TOKENS:
        tokens = tokens.where(torch.arange(len(tokens)) % -(-len(tokens) // _MOST_TOKENS) == 0)
    gap, energy = tokens.log_ratio, float(tokens.log_ratio.square().sum())
    if tokens.entropy is None:
        return _slope(tokens.trainer, gap, energy)
    if not energy > 0:
        return TemperatureFit(1.0, 0.0, is_measured=True)
    entropy, shape, (square, cube) = tokens.entropy, _shape(tokens), _cubic(tokens)

    def left(ratio: float) -> float:
        step = ratio - 1
        cumulant = -entropy * step + square * step**2 + cube * step**3
        if step > 0:
            cumulant = -entropy / shape * torch.log1p(shape * step)
        return float((gap - step * tokens.trainer + cumulant).square().sum())

    low, high = (math.log(end) for end in _RANGE)
    best = 1.0
    for _ in range(_ROUNDS):
        points = [math.exp(low + (high - low) * number / (_POINTS - 1)) for number in range(_POINTS)]
        best = min([*points, best], key=left)
        width = (high - low) / (_POINTS - 1)
        low, high = math.log(best) - width, math.log(best) + width
    return TemperatureFit(best, min(max(1 - left(best) / energy, 0.0), 1.0), is_measured=True)


def _cubic(tokens: ParityTokens) -> tuple[Tensor, Tensor]:
    """[N] each: the coefficients of ``(b - 1)^2`` and ``(b - 1)^3``."""
    assert tokens.entropy is not None  # the caller has looked
    vocabulary = math.log(max(int(tokens.token.max()) + 1, 2))
    if tokens.sum_pi_squared is None:
        square = ((tokens.trainer + tokens.entropy).square().mean() / 2).expand(tokens.entropy.shape)
        return square, tokens.entropy + square - vocabulary
    at_two = tokens.sum_pi_squared.log()
    square = (at_two + vocabulary) / 2
    return square, at_two + tokens.entropy - square


def _shape(tokens: ParityTokens) -> Tensor:
    """[N], above 0: s of the gamma distribution of each token."""
    assert tokens.entropy is not None  # the caller has looked
    entropy = tokens.entropy.clamp(min=1e-9)
    if tokens.sum_pi_squared is None:
        spread = (tokens.trainer + tokens.entropy).square().mean() / entropy.mean()
        return spread.clamp(min=1e-6).expand(entropy.shape)
    # log(1 + s) / s falls from 1 to 0; a distribution that is even has the proportion 1.
    wanted = (-tokens.sum_pi_squared.log() / entropy).clamp(1e-6, 1.0)
    low, high = torch.full_like(entropy, -14.0), torch.full_like(entropy, 21.0)
    for _ in range(40):
        middle = (low + high) / 2
        s = middle.exp()
        is_above = torch.log1p(s) / s > wanted
        low, high = torch.where(is_above, middle, low), torch.where(is_above, high, middle)
    return ((low + high) / 2).exp()


def _slope(trainer: Tensor, gap: Tensor, energy: float) -> TemperatureFit:
    x = trainer - trainer.mean()
    spread = float(x.square().sum())
    if not (spread > 0 and energy > 0):
        return TemperatureFit(1.0, 0.0, is_measured=False)
    slope = float((x * gap).sum()) / spread
    # Of the squared distance to the mean: a gap that is the same everywhere is no sign of a temperature.
    around = float((gap - gap.mean()).square().sum())
    left = float((gap - gap.mean() - slope * x).square().sum())
    share = 1 - left / around if around > 1e-12 * energy else 0.0
    return TemperatureFit(1.0 + slope, min(max(share, 0.0), 1.0), is_measured=False)
