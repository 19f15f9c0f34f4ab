"""How the slices of a bucket lie in one flat buffer, and the small text that says so to another process.

::

    flat   | slice 0 |..| slice 1      |....| slice 2 |..|      each starts at a multiple of ALIGNMENT
    handle   {"kind": transport, "at": where the buffer is, "bytes": size, "index": number of the bucket,
              "slices": [[name, dtype, shape, region, start], ...]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from rl_core.contracts.weights import WeightBucket, WeightSlice
from rl_core.errors import WeightSyncError
from torch import Tensor

ALIGNMENT: Final = 256
"""Bytes; every dtype can be read there, and copies of a GPU start at a full line of its memory."""

Region = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Place:
    """One slice in a flat buffer.

    Attributes:
        name: in the manifest.
        dtype: torch dtype by name.
        shape: of the slice.
        region: see ``WeightSlice``.
        start: its first byte.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    region: Region | None
    start: int

    @property
    def stop(self) -> int:
        """The byte behind it."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return self.start + math.prod(self.shape) * dtype.itemsize


def places_of(bucket: WeightBucket) -> tuple[tuple[Place, ...], int]:
    """Where each slice of ``bucket`` goes, and how many bytes all take."""
    places: list[Place] = []
    size = 0
    for part in bucket.slices:
        start = -(-size // ALIGNMENT) * ALIGNMENT
        dtype = str(part.tensor.dtype).removeprefix("torch.")
        places.append(Place(part.name, dtype, tuple(part.tensor.shape), part.region, start))
        size = places[-1].stop
    return tuple(places), size


def slices_in(flat: Tensor, places: Sequence[Place]) -> tuple[WeightSlice, ...]:
    """Views of a flat buffer ([n] uint8)."""
    return tuple(
        WeightSlice(
            place.name,
            flat[place.start : place.stop].view(getattr(torch, place.dtype)).view(place.shape),
            place.region,
        )
        for place in places
    )


@dataclass(frozen=True, slots=True)
class Handle:
    """What a receiver is told of a staged bucket.

    Attributes:
        kind: transport that staged it.
        at: where its buffer is; each transport has its own fields.
        num_bytes: of the buffer that are used.
        index: of the bucket.
        places: of its slices.
    """

    kind: str
    at: Mapping[str, Any]
    num_bytes: int
    index: int
    places: tuple[Place, ...]

    def encode(self) -> bytes:
        """As text (JSON in UTF-8)."""
        slices = [[place.name, place.dtype, place.shape, place.region, place.start] for place in self.places]
        fields = {"kind": self.kind, "at": self.at, "bytes": self.num_bytes, "index": self.index, "slices": slices}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, handle: bytes) -> Handle:
        """Read what ``encode`` wrote.

        Raises:
            WeightSyncError: it is something else, or a slice lies outside of the buffer.
        """
        try:
            fields = json.loads(handle)
            places = tuple(
                Place(name, dtype, tuple(shape), _region(region), start)
                for name, dtype, shape, region, start in fields["slices"]
            )
            read = cls(fields["kind"], fields["at"], fields["bytes"], fields["index"], places)
            outside = [place.name for place in places if not 0 <= place.start <= place.stop <= read.num_bytes]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            msg = f"a staged bucket is described by {handle[:80]!r}, which is no handle: {error!r}"
            raise WeightSyncError(msg) from error
        if outside:
            msg = f"a staged bucket of {read.num_bytes} bytes is said to hold {outside}, which lie outside of it"
            raise WeightSyncError(msg)
        return read


def _region(value: Sequence[Sequence[int]] | None) -> Region | None:
    return None if value is None else tuple((start, stop) for start, stop in value)
