"""Which number formats of a manifest fit a generator that holds its weights in one of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import torch

from rl_core.contracts.weights import WeightManifest


def usual_dtype(manifest: WeightManifest) -> str | None:
    """The floating-point type of most tensors that are sent."""
    count = Counter(entry.dtype for entry in manifest.sent if is_float(entry.dtype))
    return count.most_common(1)[0][0] if count else None


def fits_dtype(sent: str, held: Collection[str], usual: str | None) -> bool:
    """Whether a tensor sent as ``sent`` can be held as ``held``.

    The trainer may send in another floating-point type than the generator's, the same for all tensors (``usual``); one that
    differs from the others as well is a misfit.
    """
    return sent in held or (sent == usual and all(map(is_float, held)))


def is_float(name: str) -> bool:
    """Whether ``name`` is that of a floating-point dtype of torch."""
    dtype = getattr(torch, name, None)
    return isinstance(dtype, torch.dtype) and dtype.is_floating_point
