"""The order of rows that come from several sources in given proportions.

::

    weights 2 : 1      draw    0  1  2  3  4  5  6 ...
                       source  a  b  a  a  b  a  a ...     any stretch holds the sources in proportion, within a row or so
                       row     3  7  0  5  2  1  4 ...     each source goes through its own shuffled rows, round and round
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rl_core.errors import ConfigError


@dataclass(frozen=True)
class Mixture:
    """Sources of one data set.

    Attributes:
        sizes: rows of each source; they stand one behind the other in the data set.
        weights: of each source, in any unit.
    """

    sizes: tuple[int, ...]
    weights: tuple[float, ...]

    @cached_property
    def shares(self) -> np.ndarray:
        """[S] float64: parts of 1."""
        weights = np.array(self.weights, np.float64)
        return weights / weights.sum()

    def sources(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Which source each draw takes, and the how-manieth of that source it is.

        The k-th draw of a source with share w is due at (k + 1/2) / w; all draws are taken in the order of these times.

        Args:
            first: number of the first draw, from 0 over the whole run.
            count: how many.

        Returns:
            [count] int64 source and [count] int64 k.
        """
        # Draws due before ``first - S`` have been taken by then, those due after the last draw + S have not.
        slack = len(self.sizes) + 1
        begins = [max(0, int(np.floor(share * (first - slack)))) for share in self.shares]
        ends = [int(np.ceil(share * (first + count + slack))) + 1 for share in self.shares]
        numbers = [np.arange(begin, end) for begin, end in zip(begins, ends, strict=True)]
        times = np.concatenate([(k + 0.5) / share for k, share in zip(numbers, self.shares, strict=True)])
        source = np.repeat(np.arange(len(numbers)), [len(k) for k in numbers])
        order = np.argsort(times, kind="stable")[first - sum(begins) :][:count]
        return source[order], np.concatenate(numbers)[order]

    def rows(self, first: int, count: int, *, shuffle: bool, seed: int) -> np.ndarray:
        """[count] int64: rows of the data set that the draws from ``first`` on take.

        Args:
            first: number of the first draw, from 0 over the whole run.
            count: how many.
            shuffle: each pass through a source has a random order of its own; otherwise the source's.
            seed: of these orders.
        """
        source, number = self.sources(first, count)
        rows = np.empty(count, np.int64)
        starts = np.cumsum([0, *self.sizes])
        for index, size in enumerate(self.sizes):
            mine = source == index
            passes, within = np.divmod(number[mine], size)
            if shuffle:
                for lap in np.unique(passes):
                    order = np.random.default_rng([seed, index, int(lap)]).permutation(size)
                    within[passes == lap] = order[within[passes == lap]]
            rows[mine] = starts[index] + within
        return rows


def mixture_of(files: Sequence[str], sizes: Sequence[int], weights: Sequence[float]) -> Mixture:
    """The mixture of files in the proportions of ``data.train_files_weights``.

    Raises:
        ConfigError: there is not one positive weight for each file, or a file has no row left.
    """
    if len(weights) != len(files):
        msg = (
            f"data.train_files_weights has {len(weights)} numbers for {len(files)} files of data.train_files: give one for "
            "each file, in the same order, or null"
        )
        raise ConfigError(msg)
    for file, weight, size in zip(files, weights, sizes, strict=True):
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < float("inf"):
            msg = f"data.train_files_weights gives {file} the weight {weight!r}; it must be a number above 0"
            raise ConfigError(msg)
        if not size:
            msg = f"data.train_files_weights gives {file} the weight {weight}, but none of its rows is left to draw"
            raise ConfigError(msg)
    return Mixture(tuple(sizes), tuple(float(weight) for weight in weights))
