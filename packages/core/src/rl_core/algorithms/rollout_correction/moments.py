"""Mean and spread of values that come in parts, so that what is measured of a large batch never has to be held at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.algorithms.masks import fill_masked, masked_sum

if TYPE_CHECKING:
    from torch import Tensor


class Moments:
    """Count, mean and squared deviations of the values added so far.

    Source: merging of two parts: Chan, Golub, LeVeque 1983, "Algorithms for Computing the Sample Variance".
    """

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, values: Tensor, counted: Tensor) -> None:
        """Take in a part.

        Args:
            values: any shape, float64.
            counted: same shape, bool; the other values are ignored.

        Raises:
            ShapeError: shapes differ.
        """
        count = int(counted.count_nonzero())
        if not count:
            return
        mean = float(masked_sum(values, counted)) / count
        squares = float(fill_masked(values - mean, counted).square().sum())
        total, shift = self.count + count, mean - self.mean
        self._squares += squares + shift**2 * self.count * count / total
        self.mean += shift * count / total
        self.count = total

    @property
    def spread(self) -> float:
        """Standard deviation over the number of values; 0 for fewer than two."""
        return (self._squares / self.count) ** 0.5 if self.count > 1 else 0.0

    @property
    def effective_sample_size(self) -> float:
        """Share of the values, as weights, that equal weights would need for the same variance.

        ``(sum w)^2 / (n sum w^2)``: 1 where all weights are equal, 1/n where a single one is not 0, and 0 where all are or
        nothing is counted.

        Source: Kong 1992, "A note on importance sampling using standardized weights".
        """
        mean_square = self.mean**2 + self._squares / max(self.count, 1)
        return self.mean**2 / mean_square if mean_square > 0 else 0.0
