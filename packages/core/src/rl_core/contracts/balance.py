"""Rows shared out so that no worker waits long for the others.

Workers meet in every pass, so the slowest of them sets the pace. Responses differ in length by an order of magnitude; dealt in
order, some worker always gets more than its share.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

LINEAR_LENGTH: Final = 24_576
"""Tokens of a sequence whose causal attention costs as much as everything else: 12 times the hidden size of a dense
transformer, here of one with 2,048. In a larger model attention weighs even less."""

_Bins = list[tuple[float, list[int]]]
"""Cost and rows of each part, the heaviest first."""


def sequence_costs(lengths: ArrayLike) -> NDArray[np.float64]:
    """[B] work of a forward or backward pass over sequences of ``lengths`` [B], in tokens of a short sequence.

    A layer with hidden size h multiplies each token by about 12 h^2 weights and compares it with l / 2 tokens before it, which
    takes 2 h l operations of 24 h^2 + 2 h l: l + l^2 / (12 h) for the sequence.
    """
    tokens = np.asarray(lengths, dtype=np.float64)
    return tokens + tokens**2 / LINEAR_LENGTH


def balanced_parts(costs: ArrayLike, parts: int) -> list[NDArray[np.int64]]:
    """Deal rows into ``parts`` of nearly equal cost whose numbers of rows differ by at most one.

    Differencing: the rows in descending order make tuples of one row a part, and the two tuples with the largest spread become
    one, the heaviest part of the first joined to the lightest of the second, until one is left.

    Args:
        costs: [B] of each row, at least 0.
        parts: at least 1.

    Returns:
        Row numbers of each part, ascending, int64; parts with more rows first. The same costs always give the same parts.

    Source: Karmarkar & Karp 1982, "The differencing method of set partitioning"; with equal numbers of rows, Yakir 1996,
    "The differencing algorithm LDM for partitioning", Mathematics of Operations Research 21.
    """
    weights = np.asarray(costs, dtype=np.float64)
    order = np.argsort(-weights, kind="stable").tolist()
    heap: list[tuple[float, int, _Bins]] = []
    for number, start in enumerate(range(0, len(order), parts)):
        rows = order[start : start + parts]
        bins: _Bins = [(float(weights[row]), [row]) for row in rows]
        bins += [(0.0, [])] * (parts - len(rows))
        heap.append((_spread(bins), number, bins))
    heapq.heapify(heap)
    number = len(heap)
    while len(heap) > 1:
        first, second = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        bins = [(a + b, rows + others) for (a, rows), (b, others) in zip(first, reversed(second), strict=True)]
        bins.sort(key=lambda part: (-part[0], part[1]))
        heapq.heappush(heap, (_spread(bins), number, bins))
        number += 1
    last = heap[0][2] if heap else [(0.0, [])] * parts
    last = sorted(last, key=lambda part: (-len(part[1]), -part[0], part[1]))
    return [np.array(sorted(rows), dtype=np.int64) for _, rows in last]


def _spread(bins: _Bins) -> float:
    """Negative, so that the largest comes first from a heap."""
    return bins[-1][0] - bins[0][0]


def part_loads(costs: ArrayLike, parts: Sequence[ArrayLike]) -> NDArray[np.float64]:
    """Cost of each part."""
    weights = np.asarray(costs, dtype=np.float64)
    return np.array([weights[np.asarray(part, dtype=np.int64)].sum() for part in parts])
