from __future__ import annotations

import pytest
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_core.errors import WeightSyncError
from rl_resharding.manifests import decode_manifest, encode_manifest


def test_all_but_the_owners_travels():
    entries = (
        WeightSpec(name="embed", shape=(4, 2), dtype="bfloat16", owner_ranks=(0, 1)),
        WeightSpec(name="head", shape=(4, 2), dtype="bfloat16", tied_to="embed"),
        WeightSpec(name="scale", shape=(), dtype="float32"),
    )
    read = decode_manifest(encode_manifest(WeightManifest(entries=entries, stream="adapter")))
    assert read.stream == "adapter"
    assert read.entries == tuple(
        WeightSpec(name=one.name, shape=one.shape, dtype=one.dtype, tied_to=one.tied_to) for one in entries
    )


@pytest.mark.parametrize("broken", ["", "{}", '{"entries": [["w"]], "stream": "weights"}'])
def test_what_is_none_is_refused(broken):
    with pytest.raises(WeightSyncError, match="manifest"):
        decode_manifest(broken)
