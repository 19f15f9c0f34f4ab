"""Which rows of which tensor a rank holds, and the way from whole tensors to parts and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from rl_core.single_controller.base.collective import Collective
from torch import Tensor

Parts = dict[str, Tensor]
"""Tensor name -> the rows of it that a rank holds, float64."""


@dataclass(frozen=True, slots=True)
class Part:
    """One rank's share of one tensor.

    Attributes:
        source: tensor the values come from: the tensor's own name, or that of the tensor it is tied to.
        start: first row.
        stop: one past the last row.
        sends: whether this is one of the parts that, in rank order, make the whole tensor.
    """

    source: str
    start: int
    stop: int
    sends: bool
    is_copy: bool = False
    """Another part holds the same values under the source's own name; its gradient is counted there."""


def cut(whole: Mapping[str, Tensor], places: Mapping[str, Part]) -> Parts:
    """A rank's parts of whole tensors; scalars stay whole; copies."""
    parts: Parts = {}
    for name, place in places.items():
        tensor = whole[place.source]
        parts[name] = (tensor[place.start : place.stop] if tensor.ndim else tensor).detach().clone()
    return parts


def gather_whole(
    parts: Mapping[str, Tensor], places: Mapping[str, Part], names: Iterable[str], collective: Collective
) -> Parts:
    """Whole tensors ``names`` from all ranks' parts, in the order of ``names``; copies. Collective."""
    names = list(names)
    own = {name: parts[name].detach().clone() for name in names if name in places and places[name].sends}
    gathered = collective.all_gather_object(own)
    return {name: _join([report[name] for report in gathered if name in report]) for name in names}


def _join(pieces: list[Tensor]) -> Tensor:
    return torch.cat(pieces) if pieces[0].ndim else pieces[0].clone()
