"""One pack over several ranks: each holds some of its tokens, and all of them for some of the attention heads.

::

    rank                 0          1                       everything but attention: own tokens, whole layers
    tokens          [ a0 a1 a2 | b0 b1 .. ]    "." pads
         │ all to all
    heads           [ h0 h1 ]   [ h2 h3 ]                   attention: all tokens, own heads
         │ all to all
    tokens          [ a0 a1 a2 | b0 b1 .. ]
         │ outputs of response tokens, gathered
    outputs         the same on both; the gradient of each goes to the rank that computed it, once

Positions and masks are those of the whole pack. Padding is a sequence of its own at the end, whose outputs nobody reads.
Source: Jacobs et al. 2023 (Ulysses), arXiv:2309.14509, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from rl_core.errors import ConfigError
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import functional

from rl_engine.packing import ModelInputs


def check_sequence_parallel(size: int, world_size: int, *, pads: bool) -> None:
    """Refuse workers that cannot be grouped by ``size``, and rows that are padded.

    Raises:
        ConfigError: says which, and what to set.
    """
    if size < 1 or world_size % size:
        msg = (
            f"ulysses_sequence_parallel_size is {size}, but {world_size} workers cannot be cut into groups of {size} that "
            "share a sequence; choose a divisor of the number of workers"
        )
        raise ConfigError(msg)
    if size > 1 and pads:
        msg = (
            f"ulysses_sequence_parallel_size is {size}, which cuts packed sequences, but model.use_remove_padding is false. "
            "Turn it on, or set ulysses_sequence_parallel_size=1"
        )
        raise ConfigError(msg)


@dataclass(frozen=True, eq=False, slots=True)
class Share:
    """What one rank computes of a pass.

    Attributes:
        inputs: its tokens; ``select`` and ``tokens`` are about those response tokens whose outputs are read there, and
            ``lengths`` about the whole pack with its padding.
        positions: [1, total] int64, position ids of the whole pack with its padding.
        counts: outputs that each rank computes.
        order: [N] int64, for each output of the pass its place among those of all ranks, in rank order.
    """

    inputs: ModelInputs
    positions: Tensor
    counts: tuple[int, ...]
    order: Tensor


class SequenceParallel:
    """The ranks that share each pack."""

    def __init__(self, group: ProcessGroup, rank: int, size: int) -> None:
        """The rank's place in ``group``, which has ``size`` members."""
        self.group = group
        self.rank = rank
        self.size = size

    def cut(self, inputs: ModelInputs) -> Share:
        """This rank's share of a packed pass that all members hold alike. No communication."""
        assert inputs.lengths is not None  # padded passes are refused before
        total = inputs.input_ids.shape[1]
        each = -(-total // self.size)
        padding = each * self.size - total
        lengths = (*inputs.lengths, padding) if padding else inputs.lengths
        ids = functional.pad(inputs.input_ids, (0, padding))
        restart = torch.arange(padding, device=ids.device)[None]
        positions = torch.cat([inputs.position_ids, restart], dim=1)
        first = self.rank * each
        holder = inputs.select // each
        mine = (holder == self.rank).nonzero()[:, 0]
        own = replace(
            inputs,
            input_ids=ids[:, first : first + each],
            position_ids=positions[:, first : first + each],
            select=inputs.select[mine] - first,
            tokens=inputs.tokens[mine],
            lengths=lengths,
        )
        counts = torch.bincount(holder, minlength=self.size).tolist()
        # A place may be read in any order: sorted by rank, and for each output where it landed.
        order = torch.empty_like(holder)
        order[holder.argsort(stable=True)] = torch.arange(len(holder), device=holder.device)
        return Share(own, positions, tuple(counts), order)

    def join(self, own: Tensor, share: Share) -> Tensor:
        """[n, ...] outputs of this rank -> [N, ...] of the pass, the same on every member. Collective.

        In the backward pass each member takes the gradient of its own outputs: members compute one loss alike, and each
        output counts once.
        """
        joined: Tensor = _Join.apply(own, share.counts, self)
        return joined.index_select(0, share.order)

    def join_tokens(self, hidden: Tensor, total: int) -> Tensor:
        """[1, n, H] states of this rank's tokens -> [1, total, H] of the pack without padding. Collective."""
        joined: Tensor = _Join.apply(hidden[0], (hidden.shape[1],) * self.size, self)
        return joined[None, :total]

    def scatter_heads(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Each [1, heads, n, dim] of own tokens -> [1, heads / size, total, dim] of own heads. One exchange for all."""
        # [size, heads / size, n, dim]: what goes to each member
        cut = [tensor[0].unflatten(0, (self.size, -1)) for tensor in states]
        sizes = [part[0].numel() for part in cut]
        received = self._exchange(torch.cat([part.flatten(1) for part in cut], dim=1)).split(sizes, dim=1)
        # [size, heads / size, n, dim]: what came from each member; its tokens follow those of the one before
        parts = [piece.view(part.shape) for piece, part in zip(received, cut, strict=True)]
        return [part.transpose(0, 1).flatten(1, 2)[None] for part in parts]

    def gather_heads(self, states: Tensor) -> Tensor:
        """[1, total, heads / size, dim] of own heads -> [1, n, heads, dim] of own tokens."""
        cut = states[0].unflatten(0, (self.size, -1))
        return self._exchange(cut.contiguous()).transpose(0, 1).flatten(1, 2)[None]

    def _exchange(self, parts: Tensor) -> Tensor:
        received: Tensor = _Exchange.apply(parts, self)
        return received


class _Exchange(torch.autograd.Function):
    """[size, ...]: part i goes to member i; what comes back stands in the order of the senders. Its own inverse."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, parallel: SequenceParallel) -> Tensor:
        ctx.parallel = parallel
        return _all_to_all(parts, parallel)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _all_to_all(grad, ctx.parallel), None


def _all_to_all(parts: Tensor, parallel: SequenceParallel) -> Tensor:
    parts = parts.contiguous()
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts, group=parallel.group)
    return received


class _Join(torch.autograd.Function):
    """Everyone's rows in rank order; see ``SequenceParallel.join``."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, counts: tuple[int, ...], parallel: SequenceParallel) -> Tensor:
        ctx.counts, ctx.rank = counts, parallel.rank
        most = max(counts)
        padded = own.new_zeros(most, *own.shape[1:])
        padded[: len(own)] = own
        everyone = own.new_empty(parallel.size, *padded.shape)
        dist.all_gather(list(everyone.unbind()), padded, group=parallel.group)
        return torch.cat([rows[:count] for rows, count in zip(everyone, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad.split(ctx.counts)[ctx.rank].contiguous(), None, None


_current: ContextVar[tuple[SequenceParallel, Share] | None] = ContextVar("sequence_parallel_pass", default=None)


def current_share() -> tuple[SequenceParallel, Share] | None:
    """Of which pass a model computes its share now."""
    return _current.get()


@contextmanager
def computing(parallel: SequenceParallel, share: Share) -> Iterator[None]:
    """A pass of a model that starts inside is over ``share``."""
    token = _current.set((parallel, share))
    try:
        yield
    finally:
        _current.reset(token)
