"""What travels from a training engine to a generation engine.

::

    trainer                                   generator (one sink per rank of a replica)
    weight_manifest()  ──── begin(version, manifest) ───▶  refuse now, before any collective
    named_weights()    ──── put(bucket) … put(bucket) ──▶  take what this rank needs, add to the digest
    digest             ──── end(digest) ────────────────▶  every name there, every digest equal, or an error

A digest is the sum of a tensor's bit patterns, so it is additive over shards and does not depend on layout.
Names, shapes and dtypes are those of the Hugging Face checkpoint of the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

WeightStream = Literal["weights", "base", "adapter"]
"""``weights`` is the whole (merged) model; ``base`` is the model without its adapters, ``adapter`` only the LoRA matrices."""

WeightDigest = Mapping[str, int]
"""Tensor name -> sum of its bit patterns modulo 2**64 (``rl_core.resharding.digest``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightSpec:
    """One named tensor of the model.

    Attributes:
        name: its name in the Hugging Face checkpoint.
        shape: full (unsharded) shape.
        dtype: torch dtype by name, for example ``"bfloat16"``.
        owner_ranks: ranks of the training group that hold it or a part of it.
        tied_to: name of the tensor whose storage this one shares; a tied tensor is listed, never sent.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    owner_ranks: tuple[int, ...] = ()
    tied_to: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightManifest:
    """Every tensor of a stream, in the order in which it is sent."""

    entries: tuple[WeightSpec, ...]
    stream: WeightStream = "weights"

    @property
    def names(self) -> tuple[str, ...]:
        """All names, tied ones included, in order."""
        return tuple(entry.name for entry in self.entries)

    @property
    def sent(self) -> tuple[WeightSpec, ...]:
        """The entries that are really sent: all but the tied ones."""
        return tuple(entry for entry in self.entries if entry.tied_to is None)

    def spec(self, name: str) -> WeightSpec:
        """The entry called ``name``.

        Raises:
            KeyError: the manifest has no such entry.
        """
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(name)


def fingerprint(manifest: WeightManifest) -> str:
    """16 hex digits that depend on names, shapes, dtypes and ties, not on values or owners."""
    lines = [f"{entry.name} {entry.shape} {entry.dtype} {entry.tied_to}" for entry in manifest.entries]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class WeightSlice:
    """A tensor, or the part of one, on its way to a sink.

    Attributes:
        name: name in the manifest.
        tensor: the values; on the device of the sender. Sinks copy what they keep.
        region: ``(start, stop)`` for each dimension when ``tensor`` is a part of the full one; None for all of it.
    """

    name: str
    tensor: Tensor
    region: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class WeightBucket:
    """Several slices sent together, about ``update_weights_bucket_megabytes`` large (one tensor at least)."""

    slices: tuple[WeightSlice, ...]
    index: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncReport:
    """What one hand-over of weights did.

    Attributes:
        version: policy version now in the generator.
        num_tensors: tensors sent.
        num_bytes: bytes this rank handed to its sinks.
        seconds: wall time on this rank.
        skipped: True when the generator already held ``version``.
    """

    version: int
    num_tensors: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    skipped: bool = False
    by_phase_s: Mapping[str, float] = field(default_factory=dict)
