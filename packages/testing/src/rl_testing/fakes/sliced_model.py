"""The tiny model computed from slices, one token at a time, as a serving engine does.

Rows are multiplied and added up one by one, so a number does not depend on how many slices there are or on what else
is in flight: the same request gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
from rl_core.contracts.rollout import RolloutState

from rl_testing.fakes.model_slice import Floats, ModelSlice
from rl_testing.fakes.tiny_model import EMBED, HEAD, TinyConfig, layer_names


@dataclass(frozen=True, slots=True)
class PrefixState:
    """What is remembered of a prefix: this model's key-value cache. Never changed, so it can be shared.

    Attributes:
        length: tokens in the prefix.
        sums: [layers, H] float64, sum of each layer's inputs over the prefix.
        hidden: [H] float64, the last token's output.
    """

    length: int
    sums: Floats
    hidden: Floats


class SlicedModel:
    """All slices of a replica, seen by its lead."""

    def __init__(self, config: TinyConfig, slices: Sequence[ModelSlice]) -> None:
        """Compute with ``slices``, in rank order."""
        self.config = config
        self.slices = tuple(slices)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every rank's sink out."""
        with ExitStack() as stack:
            for part in self.slices:
                stack.enter_context(part.lock)
            yield

    def version(self) -> int | None:
        """The version that all slices hold; None when one has none or another."""
        versions = {part.version for part in self.slices}
        return versions.pop() if len(versions) == 1 else None

    def resident(self) -> frozenset[RolloutState]:
        """What is on the device on every rank."""
        return frozenset.intersection(*(part.resident() for part in self.slices))

    def empty(self) -> PrefixState:
        """The state before any token."""
        hidden = self.config.hidden_size
        return PrefixState(0, np.zeros((self.config.num_layers, hidden)), np.zeros(hidden))

    def extend(self, state: PrefixState, token_ids: Sequence[int]) -> PrefixState:
        """The state after ``token_ids`` more tokens."""
        for token in token_ids:
            state = self._extend_by_one(state, token)
        return state

    def logits(self, state: PrefixState) -> Floats:
        """Logits of the next token, [V] float64."""
        return self._times(HEAD, state.hidden)

    def _extend_by_one(self, state: PrefixState, token: int) -> PrefixState:
        length, sums, x = state.length + 1, state.sums.copy(), self._embedding(token)
        for layer in range(self.config.num_layers):
            token_name, context_name = layer_names(layer)
            sums[layer] += x
            x = x + np.tanh(self._times(token_name, x) + self._times(context_name, sums[layer] / length))
        return PrefixState(length, sums, x)

    def _embedding(self, token: int) -> Floats:
        for part in self.slices:
            start, stop = part.bounds[EMBED]
            if start <= token < stop:
                row: Floats = part.rows(EMBED)[token - start]
                return row
        raise IndexError(token)

    def _times(self, name: str, vector: Floats) -> Floats:
        return np.concatenate([np.add.reduce(part.rows(name) * vector, axis=1) for part in self.slices])
