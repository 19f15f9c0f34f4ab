"""The weight stream of the fakes: whole tensors, in manifest order, bucket by bucket, on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSlice, WeightSpec
from rl_core.errors import ConfigError
from torch import Tensor

Gather = Callable[[Sequence[str]], dict[str, Tensor]]
"""Names -> whole tensors, in that order; copies. Collective."""


def weight_stream(gather: Gather, manifest: WeightManifest, bucket_bytes: int) -> Iterator[WeightBucket]:
    """Every tensor of ``manifest`` that is sent. Collective.

    Raises:
        ConfigError: ``bucket_bytes`` is below 1.
    """
    if bucket_bytes < 1:
        msg = f"a bucket holds at least one byte; asked for {bucket_bytes}"
        raise ConfigError(msg)
    for index, specs in enumerate(fill_buckets(manifest.sent, bucket_bytes)):
        whole = gather([spec.name for spec in specs])
        yield WeightBucket(tuple(WeightSlice(name, tensor) for name, tensor in whole.items()), index)
        # A sink that keeps a reference instead of a copy must not get away with it.
        for tensor in whole.values():
            tensor.fill_(torch.nan)


def fill_buckets(specs: Iterable[WeightSpec], bucket_bytes: int) -> list[list[WeightSpec]]:
    """Cut ``specs`` in order into buckets of at most ``bucket_bytes``, or of one tensor that is larger."""
    buckets: list[list[WeightSpec]] = []
    room = 0
    for spec in specs:
        size = torch.Size(spec.shape).numel() * getattr(torch, spec.dtype).itemsize
        if not buckets or size > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(spec)
        room -= size
    return buckets
