"""What a weight sink checks: that a manifest fits, that what arrives is in it, and that all of it came unchanged.

Shared by the fake rollouts; it keeps no weights itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest, WeightSlice, WeightSpec
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import add_to_digest

Region = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """A tensor that the generator holds.

    Attributes:
        shape: full shape.
        dtype: torch dtype by name.
        tied_to: the tensor whose storage it shares in the generator.
    """

    shape: tuple[int, ...]
    dtype: str
    tied_to: str | None = None


def manifest_problems(manifest: WeightManifest, expected: Mapping[str, ExpectedTensor]) -> list[str]:
    """Everything in ``manifest`` that does not fit ``expected``, one text each.

    An entry that the trainer ties needs no counterpart: the generator copies the other tensor, shares it, or knows no
    such name. The reverse is a problem: values sent for a tensor that the generator cannot hold apart.
    """
    entries = {entry.name: entry for entry in manifest.entries}
    unknown = [name for name, entry in entries.items() if name not in expected and entry.tied_to is None]
    problems = [f"{name!r} is not in the model" for name in unknown]
    for name, wanted in expected.items():
        entry = entries.get(name)
        if entry is None:
            if wanted.tied_to is None:
                problems.append(f"{name!r} is missing")
            continue
        problems += _entry_problems(entry, wanted, entries)
    return problems


def _entry_problems(entry: WeightSpec, wanted: ExpectedTensor, entries: Mapping[str, WeightSpec]) -> Iterable[str]:
    if tuple(entry.shape) != tuple(wanted.shape):
        yield f"{entry.name!r} has shape {tuple(entry.shape)}, the model {tuple(wanted.shape)}"
    if entry.dtype != wanted.dtype:
        yield f"{entry.name!r} is {entry.dtype}, in the model {wanted.dtype}"
    if entry.tied_to is None and wanted.tied_to is not None:
        yield f"{entry.name!r} is sent on its own, but the model shares it with {wanted.tied_to!r}"
    if entry.tied_to is not None:
        source = entries.get(entry.tied_to)
        if source is None or source.tied_to is not None:
            yield f"{entry.name!r} is tied to {entry.tied_to!r}, which is not sent"


class Intake:
    """One hand-over: knows what is still to come, and the digest of what came."""

    def __init__(self, version: int, manifest: WeightManifest) -> None:
        """Wait for every entry that ``manifest`` says is sent."""
        self.version = version
        self.manifest = manifest
        self.digest: dict[str, int] = {}
        self._regions: dict[str, list[Region]] = {entry.name: [] for entry in manifest.sent}

    def accept(self, bucket: WeightBucket) -> list[tuple[WeightSlice, Region]]:
        """The bucket's slices, each with the region that it fills.

        Raises:
            WeightSyncError: a slice is not in the manifest, or has another shape or dtype than it says.
        """
        accepted = []
        for part in bucket.slices:
            if part.name not in self._regions:
                msg = f"{part.name!r} came, which the manifest of version {self.version} does not send"
                raise WeightSyncError(msg)
            spec = self.manifest.spec(part.name)
            region = part.region if part.region is not None else tuple((0, size) for size in spec.shape)
            _check_slice(part, spec, region)
            self._regions[part.name].append(region)
            accepted.append((part, region))
        add_to_digest(self.digest, bucket.slices)
        return accepted

    def check_complete(self, digest: WeightDigest) -> None:
        """Check coverage and digest at the end.

        Raises:
            WeightSyncError: lists every tensor that did not come whole or not as it was sent.
        """
        missing = [spec.name for spec in self.manifest.sent if not _covers(spec.shape, self._regions[spec.name])]
        changed = [name for name in self._regions if name not in missing and self.digest[name] != digest.get(name)]
        problems = [f"did not come whole: {missing}"] if missing else []
        problems += [f"changed on the way (digest differs): {changed}"] if changed else []
        if problems:
            msg = f"weights of version {self.version} {'; '.join(problems)}. Send them again."
            raise WeightSyncError(msg)


def _check_slice(part: WeightSlice, spec: WeightSpec, region: Region) -> None:
    shape = tuple(stop - start for start, stop in region)
    inside = len(region) == len(spec.shape) and all(
        0 <= start < stop <= size for (start, stop), size in zip(region, spec.shape, strict=True)
    )
    dtype = str(part.tensor.dtype).removeprefix("torch.")
    if not inside or tuple(part.tensor.shape) != shape or dtype != spec.dtype:
        msg = (
            f"{part.name!r} came as {tuple(part.tensor.shape)} {dtype} for region {region}; "
            f"the manifest says {tuple(spec.shape)} {spec.dtype}"
        )
        raise WeightSyncError(msg)


def _covers(shape: tuple[int, ...], regions: list[Region]) -> bool:
    """Whether ``regions`` fill ``shape`` exactly: no gap, and nothing twice."""
    apart = not any(_overlap(first, second) for place, first in enumerate(regions) for second in regions[:place])
    return apart and sum(math.prod(stop - start for start, stop in region) for region in regions) == math.prod(shape)


def _overlap(first: Region, second: Region) -> bool:
    return all(a < d and c < b for (a, b), (c, d) in zip(first, second, strict=True))
