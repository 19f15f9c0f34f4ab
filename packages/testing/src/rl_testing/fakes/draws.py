"""Drawing one token: a function of (seed, position, distribution) and of nothing else.

The uniform number of a draw comes from a counter-based generator, so no draw has to wait for, or knows of, another one.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray
from rl_core.contracts.rollout import SamplingParams

Floats = NDArray[np.float64]

_KEY_MODULUS = 1 << 64


def uniform(seed: int, position: int) -> float:
    """The number in [0, 1) that belongs to (seed, position).

    Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (Philox).
    """
    counter = np.array([position, 0, 0, 0], dtype=np.uint64)
    return float(np.random.Generator(np.random.Philox(key=seed % _KEY_MODULUS, counter=counter)).random())


def log_distribution(logits: Floats, sampling: SamplingParams, forbidden: Collection[int] = ()) -> Floats:
    """Log-probabilities that a token is drawn from.

    Temperature first, then forbidden tokens, ``top_k``, ``top_p``; what is left is normalised, so without filters this
    is the log-softmax of ``logits / temperature``. Equal logits are ranked by id. Temperature 0 leaves the one most
    likely token, with log-probability 0.

    Args:
        logits: [V] float64.
        sampling: temperature, ``top_k`` and ``top_p`` are used.
        forbidden: ids that may not be drawn now (end of sequence before ``min_tokens``).

    Returns:
        [V] float64, ``-inf`` where a token cannot be drawn.
    """
    scaled = logits.copy() if sampling.temperature == 0 else logits / sampling.temperature
    scaled[list(forbidden)] = -np.inf
    if sampling.temperature == 0:
        return _normalise(_keep(scaled, np.array([int(scaled.argmax())])))
    if 0 < sampling.top_k < len(scaled):
        scaled = _keep(scaled, np.argsort(-scaled, kind="stable")[: sampling.top_k])
    if sampling.top_p < 1:
        order = np.argsort(-scaled, kind="stable")
        before = np.cumsum(np.exp(_normalise(scaled)[order]))
        needed = 1 + int(np.searchsorted(before, sampling.top_p))
        scaled = _keep(scaled, order[:needed])
    return _normalise(scaled)


def draw(log_probs: Floats, seed: int, position: int) -> int:
    """The token whose share of the cumulative distribution, in id order, holds the uniform number.

    Args:
        log_probs: [V] float64, normalised; tokens at ``-inf`` are never drawn.
        seed: of the sequence.
        position: in the response, from 0.
    """
    possible = np.flatnonzero(log_probs > -np.inf)
    cumulative = np.cumsum(np.exp(log_probs[possible]))
    place = int(np.searchsorted(cumulative, uniform(seed, position) * cumulative[-1], side="right"))
    return int(possible[min(place, len(possible) - 1)])


def _keep(scaled: Floats, kept: NDArray[np.int64]) -> Floats:
    filtered = np.full_like(scaled, -np.inf)
    filtered[kept] = scaled[kept]
    return filtered


def _normalise(scaled: Floats) -> Floats:
    shifted = scaled - scaled.max()
    normalised: Floats = shifted - np.log(np.exp(shifted).sum())
    return normalised
