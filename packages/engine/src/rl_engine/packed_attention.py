"""Attention over packed sequences where no kernel knows where one ends: each sequence by itself.

Torch's kernels see one long row and a mask, so their work grows with the square of the whole pack. Here the pack is opened for
attention alone: sequences of about one length become the rows of one causal problem, and everything else of the model still
sees the pack::

    pack     [ a0 a1 a2 | b0 b1 | c0 c1 c2 ]          group of length 3:   a0 a1 a2
                                                                           b0 b1 .      "." repeats b1; what it gives is dropped
                                                                           c0 c1 c2

The layout of the pack travels through the model in the place of the attention mask, so it also reaches layers that are
computed again in the backward pass. A model that looks into its mask fails the trial in ``attention.choose_attention`` and
keeps the attention it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

PACKED: Final = "rl_packed"
"""Name of the implementation in transformers."""

_UNSUPPORTED: Final = ("position_bias", "softcap", "s_aux", "output_attentions", "dropout")


@dataclass(frozen=True, eq=False, slots=True)
class _Group:
    """Sequences that are one problem.

    Attributes:
        count: of the sequences.
        length: of the longest.
        places: [count * length] int64, tokens of the pack; None when they are all of it, in order.
    """

    count: int
    length: int
    places: Tensor | None


class Layout:
    """Where the sequences of one pack stand."""

    def __init__(self, lengths: Sequence[int], device: torch.device | str) -> None:
        """Group sequences of ``lengths`` [B], which fill the pack in this order."""
        sizes = [size for size in lengths if size]
        self.longest = max(sizes, default=0)
        self.offsets = torch.tensor([0, *sizes], dtype=torch.int32).cumsum(0, dtype=torch.int32).to(device)
        """[B + 1] int32, where each sequence begins, and the end."""
        self.order: Tensor | None = None
        """[total] int64, for each token of the pack its place in the outputs of all groups; None when that is its own."""
        if len(set(sizes)) == 1:
            self.groups = [_Group(len(sizes), self.longest, None)]
            return
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + size)
        self.groups = []
        order = torch.empty(starts[-1], dtype=torch.int64)
        filled = 0
        for rows in _of_about_one_length(sizes):
            length = sizes[rows[0]]
            ends = torch.tensor([starts[row] + sizes[row] - 1 for row in rows])
            columns = torch.arange(length)
            places = torch.minimum(torch.tensor([starts[row] for row in rows])[:, None] + columns, ends[:, None])
            for number, row in enumerate(rows):
                first = filled + number * length
                order[starts[row] : starts[row] + sizes[row]] = torch.arange(first, first + sizes[row])
            filled += len(rows) * length
            self.groups.append(_Group(len(rows), length, places.view(-1).to(device)))
        self.order = order.to(device)


def _of_about_one_length(sizes: Sequence[int]) -> list[list[int]]:
    """Numbers of the sequences, longest first, cut where one is at most half as long as the first of its group."""
    groups: list[list[int]] = []
    for row in sorted(range(len(sizes)), key=lambda row: -sizes[row]):
        if groups and 2 * sizes[row] > sizes[groups[-1][0]]:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


_current: ContextVar[Layout | None] = ContextVar("packed_layout", default=None)


def current_layout() -> Layout | None:
    """The layout of the pack that a model is called with now."""
    return _current.get()


@contextmanager
def packed_as(layout: Layout | None) -> Iterator[None]:
    """Passes of a model that start inside are over a pack of this layout."""
    token = _current.set(layout)
    try:
        yield
    finally:
        _current.reset(token)


def packed_mask(*args: Any, local_size: int | None = None, **kwargs: Any) -> Any:
    """The layout of the pack in place of a mask; the mask of torch's kernels where a window is shorter than a sequence."""
    layout = _current.get()
    if layout is None or (local_size is not None and local_size < layout.longest):
        return sdpa_mask(*args, local_size=local_size, **kwargs)
    return layout


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Layout | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """See transformers' ``sdpa_attention_forward``, which does whatever is not a pack.

    Args:
        module: the attention layer.
        query: [1, heads, total, dim].
        key: [1, key-value heads, total, dim].
        value: [1, key-value heads, total, dim].
        attention_mask: the layout, or what ``sdpa_mask`` made.
        dropout: share of the weights that are dropped.
        scaling: of the scores; None is one over the root of ``dim``.
        kwargs: what else the model passes.

    Returns:
        [1, total, heads, dim], and no weights.

    Raises:
        ValueError: the model wants of its attention what is not done here.
    """
    if not isinstance(attention_mask, Layout):
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return found
    refuse_unsupported(kwargs)
    outputs = [
        scaled_dot_product_attention(
            _rows(query, group),
            _rows(key, group),
            _rows(value, group),
            dropout_p=dropout,
            is_causal=True,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        # [count, heads, length, dim] -> tokens first
        .transpose(1, 2)
        .flatten(0, 1)
        for group in attention_mask.groups
    ]
    tokens = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    if attention_mask.order is not None:
        tokens = tokens.index_select(0, attention_mask.order)
    return tokens[None], None


def _rows(states: Tensor, group: _Group) -> Tensor:
    """[1, heads, total, dim] -> [count, heads, length, dim]."""
    chosen = states if group.places is None else states.index_select(2, group.places)
    return chosen.unflatten(2, (group.count, group.length))[0].transpose(0, 1)


def refuse_unsupported(arguments: Mapping[str, Any]) -> None:
    """Raise for what a model wants of its attention and neither implementation over packs has.

    Raises:
        ValueError: names it.
    """
    unsupported = [name for name in _UNSUPPORTED if arguments.get(name) not in (None, False)]
    if arguments.get("is_causal") is False:
        unsupported.append("attention to later tokens")
    if unsupported:
        msg = f"attention over packed sequences knows no {', '.join(unsupported)}"
        raise ValueError(msg)


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, packed_mask)
