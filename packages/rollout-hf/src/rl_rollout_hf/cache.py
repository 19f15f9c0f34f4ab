"""Keys and values of the running sequences: one row each, all rows equally long, every sequence from column 0 on.

::

    row 0   p p p r r r . . . . . . |        p prompt, r response, . not written
    row 1   p r r r r r r r . . . . |        rows are contiguous: when a sequence ends, the last one takes its place,
    row 2   p p p p p r . . . . . . |        so a pass over the batch reads a view and copies nothing
            <-------- length ------->

The model sees a row cache through one of two views, for the two kinds of pass there are: ``Filling`` for prompts,
``Stepping`` for one token a row. What stands right of a sequence is masked, and is finite, since 0 times NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

BLOCK = 64
"""Rows grow by so many columns at a time at least."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps of one token."""

    num_heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class Need:
    """What a step needs of the cache.

    Attributes:
        rows: rows that run.
        length: columns that they fill.
        likely_rows: rows that may soon run.
        likely_length: columns that they may come to fill.
    """

    rows: int
    length: int
    likely_rows: int
    likely_length: int


def capacity_for(need: Need, budget_tokens: int) -> tuple[int, int]:
    """``(rows, length)`` to take memory for: what is needed, then more rows, then longer ones, within the budget.

    Depends on nothing but its arguments, so a batch that meets an idle engine finds the same layout each time.
    """
    length = -(-need.length // BLOCK) * BLOCK
    if need.rows * length > budget_tokens:
        length = need.length
    rows = max(need.rows, min(need.likely_rows, budget_tokens // length))
    return rows, max(length, min(need.likely_length, budget_tokens // rows))


class RowCache:
    """The memory. Layers are taken and given back together."""

    def __init__(self, layers: Sequence[LayerShape], dtype: torch.dtype, device: torch.device) -> None:
        """Take no memory yet."""
        self.layers = tuple(layers)
        self.dtype = dtype
        self.device = device
        self.rows = self.length = 0
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    @property
    def bytes_per_token(self) -> int:
        """Size of one column of one row in all layers."""
        return sum(one.num_heads * (one.key_dim + one.value_dim) for one in self.layers) * self.dtype.itemsize

    def fit(self, need: Need, budget_tokens: int, *, kept_rows: int, kept_length: int) -> None:
        """Make room for ``need``; the first ``kept_length`` columns of the first ``kept_rows`` rows keep their values."""
        wanted = capacity_for(need, budget_tokens)
        is_large_enough = need.rows <= self.rows and need.length <= self.length
        if (is_large_enough and kept_rows) or wanted == (self.rows, self.length):
            return
        if not kept_rows:
            self.free()  # before memory is taken anew
        rows, length = wanted
        for index, layer in enumerate(self.layers):
            keys = self._zeros(rows, layer.num_heads, length, layer.key_dim)
            values = self._zeros(rows, layer.num_heads, length, layer.value_dim)
            if kept_rows:
                keys[:kept_rows, :, :kept_length] = self.keys[index][:kept_rows, :, :kept_length]
                values[:kept_rows, :, :kept_length] = self.values[index][:kept_rows, :, :kept_length]
                self.keys[index], self.values[index] = keys, values
            else:
                self.keys.append(keys)
                self.values.append(values)
        self.rows, self.length = rows, length

    def move(self, moves: Sequence[tuple[int, int]], length: int) -> None:
        """Copy the first ``length`` columns from row to row, ``(from, to)`` each."""
        for source, target in moves:
            for tensor in (*self.keys, *self.values):
                tensor[target, :, :length] = tensor[source, :, :length]

    def clear(self, row: int) -> None:
        """Write zeros over a row that holds what is not a number."""
        for tensor in (*self.keys, *self.values):
            tensor[row].zero_()

    def free(self) -> None:
        """Give all memory back, whoever still holds a view of it."""
        for tensor in (*self.keys, *self.values):
            tensor.untyped_storage().resize_(0)
        self.keys, self.values = [], []
        self.rows = self.length = 0

    def _zeros(self, rows: int, heads: int, length: int, dim: int) -> Tensor:
        return torch.zeros(rows, heads, length, dim, dtype=self.dtype, device=self.device)


class _View(Cache):
    """What transformers asks of any cache; the two passes need no more than ``update``."""

    is_compileable = False

    def __init__(self, cache: RowCache) -> None:
        super().__init__(layers=[])
        self._cache = cache

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Nothing stands before the tokens of the pass that the model should count."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """The mask of a prompt is as wide as the prompt."""
        return query_length, 0


class Filling(_View):
    """A pass over prompts, each from column 0; prompts may fill several rows."""

    def __init__(self, cache: RowCache, rows: Sequence[int], sources: Sequence[int], lengths: Sequence[int]) -> None:
        """Fill ``rows[i]`` with prompt ``sources[i]`` of the pass; prompt j has ``lengths[j]`` tokens."""
        super().__init__(cache)
        self._rows = torch.tensor(rows, device=cache.device)
        self._sources = torch.tensor(sources, device=cache.device)
        self._is_plain = list(sources) == list(range(len(lengths)))
        columns = torch.arange(max(lengths), device=cache.device)
        padding = columns >= torch.tensor(lengths, device=cache.device)[:, None]
        self._padding = padding[:, None, :, None] if min(lengths) < max(lengths) else None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store [P, heads, L, dim], zeros for padding; attention is within the prompts."""
        for stored, fresh in (
            (self._cache.keys[layer_idx], key_states),
            (self._cache.values[layer_idx], value_states),
        ):
            clean = fresh if self._padding is None else fresh.masked_fill(self._padding, 0)
            stored[self._rows, :, : fresh.shape[2]] = clean if self._is_plain else clean[self._sources]
        return key_states, value_states


class Stepping(_View):
    """A pass over one token of each of the first rows, at ``positions`` [B]; sees the first ``length`` columns."""

    def __init__(self, cache: RowCache, positions: Tensor, length: int) -> None:
        """Rows see what stands left of their position, and the token itself, by the mask of the pass."""
        super().__init__(cache)
        self._num_rows = len(positions)
        self._columns = positions[:, None, None, None]
        self._length = length

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store [B, heads, 1, dim] and return views of the rows."""
        return self._add(self._cache.keys[layer_idx], key_states), self._add(
            self._cache.values[layer_idx], value_states
        )

    def _add(self, stored: Tensor, fresh: Tensor) -> Tensor:
        rows = stored[: self._num_rows]
        rows.scatter_(2, self._columns.expand(fresh.shape), fresh)
        return rows[:, :, : self._length]
