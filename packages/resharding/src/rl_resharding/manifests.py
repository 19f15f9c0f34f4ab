"""A manifest as text, for processes that are told by RPC what will come."""

from __future__ import annotations

import json

from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_core.errors import WeightSyncError


def encode_manifest(manifest: WeightManifest) -> str:
    """As JSON; owner ranks are left out, as they mean nothing to a receiver."""
    entries = [[entry.name, entry.shape, entry.dtype, entry.tied_to] for entry in manifest.entries]
    return json.dumps({"stream": manifest.stream, "entries": entries}, separators=(",", ":"))


def decode_manifest(text: str) -> WeightManifest:
    """Read what ``encode_manifest`` wrote.

    Raises:
        WeightSyncError: it is something else.
    """
    try:
        fields = json.loads(text)
        entries = tuple(
            WeightSpec(name=name, shape=tuple(shape), dtype=dtype, tied_to=tied_to)
            for name, shape, dtype, tied_to in fields["entries"]
        )
        return WeightManifest(entries=entries, stream=fields["stream"])
    except (ValueError, KeyError, TypeError) as error:
        msg = f"a manifest is described by {text[:80]!r}, which is none: {error!r}"
        raise WeightSyncError(msg) from error
