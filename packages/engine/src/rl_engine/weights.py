"""The weight stream of an engine: what is sent, in which order, in which buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSlice, WeightSpec
from rl_core.errors import ConfigError
from torch import Tensor

from rl_engine.file_form import FileForm

OwnerRanks = Callable[[Tensor], tuple[int, ...]]
"""A tensor of the model -> ranks that hold it or a part of it."""


def build_manifest(
    named: Iterable[tuple[str, Tensor]], *, wire_dtype: torch.dtype | None, owner_ranks: OwnerRanks
) -> WeightManifest:
    """List every tensor of a model.

    Args:
        named: name in memory and tensor, whole or sharded with its global shape; a tied tensor comes once under
            each of its names.
        wire_dtype: floating-point tensors are sent in it; None sends each as it is.
        owner_ranks: who holds a tensor.
    """
    entries: list[WeightSpec] = []
    first_name: dict[int, str] = {}
    for name, tensor in named:
        twin = first_name.setdefault(id(tensor), name)
        dtype = sent_dtype(tensor, wire_dtype)
        entries.append(
            WeightSpec(
                name=name,
                shape=tuple(tensor.shape),
                dtype=str(dtype).removeprefix("torch."),
                owner_ranks=owner_ranks(tensor),
                tied_to=None if twin == name else twin,
            )
        )
    return WeightManifest(entries=tuple(entries))


def sent_dtype(tensor: Tensor, wire_dtype: torch.dtype | None) -> torch.dtype:
    """The type in which a tensor is sent."""
    return wire_dtype if wire_dtype is not None and tensor.is_floating_point() else tensor.dtype


def fill_buckets(specs: Iterable[WeightSpec], bucket_bytes: int) -> list[list[WeightSpec]]:
    """Cut ``specs`` in order into buckets of at most ``bucket_bytes``, or of one tensor that is larger.

    Raises:
        ConfigError: ``bucket_bytes`` is below 1.
    """
    if bucket_bytes < 1:
        msg = f"a bucket of weights holds at least one byte; asked for {bucket_bytes}"
        raise ConfigError(msg)
    buckets: list[list[WeightSpec]] = []
    room = 0
    for spec in specs:
        size = spec_bytes(spec)
        if not buckets or size > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(spec)
        room -= size
    return buckets


def spec_bytes(spec: WeightSpec) -> int:
    """Size of a whole tensor on its way."""
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return torch.Size(spec.shape).numel() * dtype.itemsize


def weight_stream(
    manifest: WeightManifest,
    bucket_bytes: int,
    gather: Callable[[Sequence[WeightSpec]], list[Tensor]],
    form: FileForm | None = None,
) -> Iterator[WeightBucket]:
    """Every tensor of ``manifest`` that is sent, bucket by bucket.

    Args:
        manifest: lists the tensors in memory, in their order.
        bucket_bytes: size of a bucket. A larger tensor is gathered alone; where it is several in files, their buckets are
            views of it.
        gather: specs -> whole tensors in the promised type. Collective.
        form: of the tensors in files, which are what is sent; None sends them as they are in memory.

    Raises:
        ConfigError: ``bucket_bytes`` is below 1.
    """
    form = form or FileForm()
    index = 0
    for specs in fill_buckets(manifest.sent, bucket_bytes):
        whole = gather(specs)
        views = {
            name: view
            for spec, tensor in zip(specs, whole, strict=True)
            for name, view in form.parts(spec.name, tensor)
        }
        for parts in fill_buckets(form.manifest(WeightManifest(entries=tuple(specs))).sent, bucket_bytes):
            yield WeightBucket(tuple(WeightSlice(part.name, views[part.name]) for part in parts), index)
            index += 1
