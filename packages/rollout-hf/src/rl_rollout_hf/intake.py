"""What one hand-over of weights is checked against: the model before anything is sent, manifest and digest as it comes.

Keeps no weights itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest, WeightSlice, WeightSpec
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import add_to_digest

Region = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor of the generator's model.

    Attributes:
        shape: as in the checkpoint.
        dtype: torch dtype by name.
        shares: name of the tensor whose memory this one is; its own name when it stands alone, or first.
    """

    shape: tuple[int, ...]
    dtype: str
    shares: str


def manifest_problems(manifest: WeightManifest, held: Mapping[str, HeldTensor]) -> list[str]:
    """Everything in ``manifest`` that does not fit the model, one text each.

    The trainer may send in another floating-point type than the generator's, the same for all tensors; one that differs
    from the others as well is a misfit.
    """
    sent = {entry.name: entry for entry in manifest.sent}
    problems = [f"{name!r} is not in the model" for name in sent if name not in held]
    usual = _usual_dtype(manifest)
    problems += [text for entry in manifest.entries for text in _entry_problems(entry, held, sent, usual)]
    groups: dict[str, list[str]] = {}
    for name, tensor in held.items():
        groups.setdefault(tensor.shares, []).append(name)
    for names in groups.values():
        coming = [name for name in names if name in sent]
        if len(coming) > 1:
            problems.append(f"{' and '.join(map(repr, coming))} are sent apart, but share their memory in the model")
    listed = set(manifest.names)
    for names in groups.values():
        if not listed & set(names):
            problems.append(f"{names[0]!r} is missing")
    return problems


def _entry_problems(
    entry: WeightSpec, held: Mapping[str, HeldTensor], sent: Mapping[str, WeightSpec], usual: str | None
) -> Iterator[str]:
    if entry.tied_to is not None and entry.tied_to not in sent:
        yield f"{entry.name!r} is tied to {entry.tied_to!r}, which is not sent"
    tensor = held.get(entry.name)
    if tensor is None:
        return
    if tuple(entry.shape) != tensor.shape:
        yield f"{entry.name!r} has shape {tuple(entry.shape)}, the model {tensor.shape}"
    if entry.dtype == tensor.dtype:
        return
    if entry.dtype != usual or not _is_float(tensor.dtype):
        yield f"{entry.name!r} is {entry.dtype}, in the model {tensor.dtype}"


def _usual_dtype(manifest: WeightManifest) -> str | None:
    """The floating-point type of most tensors that are sent."""
    count = Counter(entry.dtype for entry in manifest.sent if _is_float(entry.dtype))
    return count.most_common(1)[0][0] if count else None


def _is_float(name: str) -> bool:
    dtype = getattr(torch, name, None)
    return isinstance(dtype, torch.dtype) and dtype.is_floating_point


class Intake:
    """One hand-over: knows what is still to come, and the digest of what came."""

    def __init__(self, version: int, manifest: WeightManifest) -> None:
        """Wait for every entry that ``manifest`` says is sent."""
        self.version = version
        self.manifest = manifest
        self.digest: dict[str, int] = {}
        self._specs = {entry.name: entry for entry in manifest.sent}
        self._regions: dict[str, list[Region]] = {name: [] for name in self._specs}

    def accept(self, bucket: WeightBucket) -> list[tuple[WeightSlice, Region]]:
        """The bucket's slices, each with the region that it fills.

        Raises:
            WeightSyncError: a slice is not in the manifest, or has another shape or dtype than it says.
        """
        accepted = []
        for part in bucket.slices:
            spec = self._specs.get(part.name)
            if spec is None:
                msg = f"{part.name!r} came, which the manifest of version {self.version} does not send"
                raise WeightSyncError(msg)
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
        missing = [name for name, spec in self._specs.items() if not _covers(spec.shape, self._regions[name])]
        changed = [name for name in self._specs if name not in missing and self.digest[name] != digest.get(name)]
        problems = [f"did not come whole: {missing}"] if missing else []
        problems += [f"changed on the way (digest differs): {changed}"] if changed else []
        if problems:
            msg = f"weights of version {self.version} {'; '.join(problems)}. Send them again."
            raise WeightSyncError(msg)


def _check_slice(part: WeightSlice, spec: WeightSpec, region: Region) -> None:
    shape = tuple(stop - start for start, stop in region)
    is_inside = len(region) == len(spec.shape) and all(
        0 <= start < stop <= size for (start, stop), size in zip(region, spec.shape, strict=True)
    )
    dtype = str(part.tensor.dtype).removeprefix("torch.")
    if not is_inside or tuple(part.tensor.shape) != shape or dtype != spec.dtype:
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
