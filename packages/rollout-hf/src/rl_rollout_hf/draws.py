"""Random numbers that depend on (seed, position) alone, so that no draw has to wait for, or knows of, another one."""

from __future__ import annotations

import numpy as np

_BLOCK = 256
"""Numbers made at a time."""
_COUNTERS = _BLOCK // 4
"""One counter of the generator gives four numbers."""
_KEYS = 1 << 64


class Uniforms:
    """The numbers in [0, 1) of one seed, by position.

    Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (Philox 4x64-10): the seed is the key and
    the position the counter, so any number can be made without those before it.
    """

    __slots__ = ("_block", "_first", "_seed")

    def __init__(self, seed: int) -> None:
        """Numbers of ``seed``; seeds that are equal modulo 2**64 are the same."""
        self._seed = seed % _KEYS
        self._first = -_BLOCK
        self._block: list[float] = []

    def __getitem__(self, position: int) -> float:
        """The number at ``position``, from 0."""
        place = position - self._first
        if not 0 <= place < _BLOCK:
            index, place = divmod(position, _BLOCK)
            generator = np.random.Philox(key=self._seed, counter=[index * _COUNTERS, 0, 0, 0])
            self._block = np.random.Generator(generator).random(_BLOCK).tolist()
            self._first = index * _BLOCK
        return self._block[place]
