"""What a receiver of weights checks as they come: each slice against the manifest, coverage and digest at the end.

For every generation engine's sink. Keeps no weights itself.
"""

from __future__ import annotations

import math

from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest, WeightSlice, WeightSpec
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import add_to_digest

Region = tuple[tuple[int, int], ...]
"""Start and stop of a slice in each dimension of its tensor."""


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
