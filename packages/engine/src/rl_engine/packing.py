"""Rows of different length as the tensors of one forward pass.

::

    packed   input_ids     [ a0 a1 a2 b0 b1 ]      one row without padding; positions restart at each sequence,
             position_ids  [ 0  1  2  0  1  ]      which is how attention knows where one ends
    padded   input_ids     [[ a0 a1 a2 ]           one row a sequence, padded on the right
                            [ b0 b1 0  ]]

Two ways of calling a packed forward mix the sequences without a word: with the cache that models use by default, and
with an attention mask of ones. ``ModelInputs.arguments`` is therefore the one place that writes a model's arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from rl_core.algorithms.positions import position_ids
from torch import Tensor


@dataclass(frozen=True, eq=False, slots=True)
class ModelInputs:
    """One forward pass. N counts the response tokens of its rows, row by row.

    Attributes:
        input_ids: [1, total] packed or [B, L] padded, int64.
        position_ids: the same shape, int64.
        attention_mask: [B, L] int64 when padded; None when packed.
        select: [N] int64, places in the flattened ``input_ids`` whose hidden states give the outputs.
        tokens: [N] int64, the response tokens themselves.
        lengths: tokens of each packed sequence; None when padded.
        images: of all rows, by the names of the model's arguments; see ``rl_engine.images``.
    """

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor | None
    select: Tensor
    tokens: Tensor
    lengths: tuple[int, ...] | None = None
    images: Mapping[str, Tensor] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for a transformers model."""
        return {
            "input_ids": self.input_ids,
            "position_ids": self.position_ids,
            "attention_mask": self.attention_mask,
            "use_cache": False,
        }

    def to(self, device: torch.device | str) -> ModelInputs:
        """The same on ``device``."""
        mask = self.attention_mask
        return ModelInputs(
            input_ids=self.input_ids.to(device),
            position_ids=self.position_ids.to(device),
            attention_mask=None if mask is None else mask.to(device),
            select=self.select.to(device),
            tokens=self.tokens.to(device),
            lengths=self.lengths,
            images={name: values.to(device) for name, values in self.images.items()},
        )


def pack(ids: Tensor, lengths: Sequence[int], responses: Sequence[int], *, shift: int = 1) -> ModelInputs:
    """One row without padding.

    Args:
        ids: [total] int64, the sequences one after the other; without any, a single dummy token is passed.
        lengths: of each sequence.
        responses: how many tokens at the end of each sequence are its response.
        shift: how many places before a response token its output is read: 1 for what predicts it, 0 for what has read it.
    """
    ids, sizes = ids.long(), _whole(lengths)
    starts = sizes.cumsum(0) - sizes
    positions = torch.arange(int(sizes.sum())) - torch.repeat_interleave(starts, sizes)
    places = _response_places(starts + sizes, _whole(responses))
    return _inputs(ids[None], positions[None], None, places - shift, ids[places], tuple(lengths))


def pad(ids: Tensor, lengths: Sequence[int], responses: Sequence[int], *, shift: int = 1) -> ModelInputs:
    """One row a sequence, padded on the right with 0; arguments as for ``pack``."""
    ids, sizes = ids.long(), _whole(lengths)
    width = int(sizes.max()) if len(sizes) else 0
    mask = torch.arange(width) < sizes[:, None]
    padded = torch.zeros(mask.shape, dtype=torch.int64).masked_scatter(mask, ids)
    places = _response_places(torch.arange(len(sizes)) * width + sizes, _whole(responses))
    return _inputs(padded, position_ids(mask), mask.long(), places - shift, padded.view(-1)[places])


def _inputs(
    ids: Tensor,
    positions: Tensor,
    mask: Tensor | None,
    select: Tensor,
    tokens: Tensor,
    lengths: tuple[int, ...] | None = None,
) -> ModelInputs:
    if ids.numel():
        return ModelInputs(ids, positions, mask, select, tokens, lengths)
    # A model cannot run on nothing, and a rank without rows still has to meet the others in it.
    dummy, none = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    mask = None if mask is None else torch.ones_like(dummy)
    return ModelInputs(dummy, dummy.clone(), mask, none, none.clone(), None if lengths is None else (1,))


def _response_places(ends: Tensor, responses: Tensor) -> Tensor:
    """[N] places of all response tokens, given the place after the last token of each sequence."""
    first = torch.repeat_interleave(responses.cumsum(0) - responses, responses)
    return torch.repeat_interleave(ends - responses, responses) + torch.arange(int(responses.sum())) - first


def _whole(numbers: Sequence[int]) -> Tensor:
    return torch.tensor(list(numbers), dtype=torch.int64)
