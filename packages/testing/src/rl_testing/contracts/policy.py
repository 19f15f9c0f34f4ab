"""The model behind a generation engine, as a suite knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest, WeightSlice
from rl_core.resharding.digest import add_to_digest

if TYPE_CHECKING:
    from torch import Tensor


class PolicyModel(Protocol):
    """A small model whose numbers can be computed without the engine.

    ``rl_testing.fakes.tiny_policy.TinyPolicy`` is one; a plugin's tests wrap a real model of a few layers.
    """

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""

    def manifest(self) -> WeightManifest:
        """What the trainer sends."""

    def weights(self, version: int) -> Mapping[str, Tensor]:
        """Every tensor of the manifest for ``version``; versions differ clearly, a version is always the same."""

    def logits(self, version: int, token_ids: Sequence[int]) -> Tensor:
        """[T, V]: row t says what follows ``token_ids[:t + 1]``, with the weights of ``version``."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids."""


def as_buckets(
    manifest: WeightManifest, weights: Mapping[str, Tensor], *, pieces: int = 1, leave_out: Sequence[str] = ()
) -> tuple[list[WeightBucket], WeightDigest]:
    """A stream as a trainer sends it, a tensor a bucket, and its digest.

    Args:
        manifest: says what is sent.
        weights: values by name.
        pieces: cut each tensor along its first dimension into so many regions.
        leave_out: names that are not sent, though the digest has them.
    """
    digest: dict[str, int] = {}
    buckets: list[WeightBucket] = []
    for spec in manifest.sent:
        tensor = weights[spec.name].detach()
        add_to_digest(digest, [WeightSlice(spec.name, tensor)])
        if spec.name in leave_out:
            continue
        if pieces == 1:
            buckets.append(WeightBucket((WeightSlice(spec.name, tensor.clone()),), index=len(buckets)))
            continue
        start = 0
        for part in tensor.tensor_split(pieces):
            region = ((start, start + len(part)), *((0, size) for size in spec.shape[1:]))
            start += len(part)
            if len(part):
                buckets.append(WeightBucket((WeightSlice(spec.name, part.clone(), region),), index=len(buckets)))
    return buckets, digest
