"""Which rows make one optimizer step.

The controller decides; workers only follow. A plan travels in ``batch.meta_info["mini_batch_plan"]`` and is cut
*inside* each mini-batch, so one worker and four take the same optimizer steps on the same rows, and each share of
a loss is divided by the totals of the whole mini-batch, never by what one rank or micro-batch happens to see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_core.contracts.balance import balanced_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rl_core.algorithms.inputs import LossTotals

PLAN_KEY = "mini_batch_plan"
"""Key of the plan in ``DataProto.meta_info``."""


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """One optimizer step.

    Attributes:
        rows: [R] int64, rows of the batch that the plan travels with; may be empty on one of several workers.
        totals: tokens and sequences of the whole mini-batch, over all workers.
        epoch: pass over the batch, from 0.
        index: number of the mini-batch within its epoch, from 0.
    """

    rows: NDArray[np.int64]
    totals: LossTotals
    epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class MiniBatchPlan:
    """The optimizer steps of one update, in order.

    Attributes:
        batches: the steps.
        costs: [B] float64, work of each row of the batch, to share it out evenly; None deals rows in their order.
    """

    batches: tuple[MiniBatch, ...]
    costs: NDArray[np.float64] | None = None

    def split(self, dp_size: int) -> list[tuple[NDArray[np.int64], MiniBatchPlan]]:
        """Cut every mini-batch into ``dp_size`` nearly equal parts, of about the same cost where costs are known.

        Returns:
            For each data-parallel rank the rows it needs, each once (int64, rows of the batch), and the plan in
            terms of those rows. Parts of one mini-batch differ by at most one row; the surplus rows of successive
            mini-batches go to successive ranks.
        """
        parts: list[list[NDArray[np.int64]]] = [[] for _ in range(dp_size)]
        for number, batch in enumerate(self.batches):
            pieces = self._pieces(batch.rows, dp_size)
            for rank in range(dp_size):
                parts[(rank + number) % dp_size].append(pieces[rank])
        return [self._local(part) for part in parts]

    def _pieces(self, rows: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
        if self.costs is None or count == 1:
            return np.array_split(rows, count)
        return [rows[part] for part in balanced_parts(self.costs[rows], count)]

    def _local(self, parts: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], MiniBatchPlan]:
        rows = np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int64)
        local = tuple(
            MiniBatch(rows=np.searchsorted(rows, part), totals=batch.totals, epoch=batch.epoch, index=batch.index)
            for part, batch in zip(parts, self.batches, strict=True)
        )
        return rows.astype(np.int64, copy=False), MiniBatchPlan(local)
