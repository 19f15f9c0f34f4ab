"""Cuts a batch into optimizer steps; see ``rl_core.contracts.mini_batch`` for how a plan travels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rl_core.algorithms.inputs import LossTotals
from rl_core.contracts.mini_batch import MiniBatch, MiniBatchPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray


def plan_mini_batches(
    uid: NDArray[np.object_],
    num_tokens: NDArray[np.int64],
    *,
    mini_batch_size: int,
    epochs: int,
    shuffle: bool,
    seed: tuple[int, ...],
    max_response_length: int,
    costs: NDArray[np.float64] | None = None,
) -> MiniBatchPlan:
    """Assign prompt groups, whole, to mini-batches.

    Args:
        uid: [B] prompt of each row; equal values form a group.
        num_tokens: [B] trained tokens of each row.
        mini_batch_size: prompts of one optimizer step; the last one of an epoch may have fewer.
        epochs: passes over the batch.
        shuffle: visit the groups in a new order each epoch, drawn from ``seed`` and the epoch.
        seed: whatever the order depends on, for example (trainer seed, step).
        max_response_length: for ``LossTotals``.
        costs: [B] work of each row, for sharing rows out over workers; see ``MiniBatchPlan``.

    Returns:
        ``epochs`` times the groups, in mini-batches. A row without trained tokens is left out: it has no gradient.
    """
    first_row, group_of_row = _groups(uid)
    trained = num_tokens > 0
    batches: list[MiniBatch] = []
    for epoch in range(epochs):
        order = np.arange(len(first_row))
        if shuffle:
            order = np.random.default_rng([*seed, epoch]).permutation(order)
        for index, start in enumerate(range(0, len(order), mini_batch_size)):
            chosen = order[start : start + mini_batch_size]
            rows = np.flatnonzero(np.isin(group_of_row, chosen) & trained)
            totals = LossTotals(
                num_tokens=int(num_tokens[rows].sum()),
                num_sequences=len(rows),
                max_response_length=max_response_length,
            )
            if len(rows):
                batches.append(MiniBatch(rows=rows, totals=totals, epoch=epoch, index=index))
    return MiniBatchPlan(tuple(batches), costs)


def _groups(uid: NDArray[np.object_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Groups numbered by first appearance: (first row of each group, group of each row)."""
    _, first, inverse = np.unique(uid.astype(str), return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.sort(first), rank[inverse]
