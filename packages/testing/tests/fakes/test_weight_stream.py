from __future__ import annotations

import pytest
import torch
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_core.errors import ConfigError
from rl_testing.fakes.weight_stream import fill_buckets, weight_stream

SPECS = [
    WeightSpec(name=name, shape=(rows, 2), dtype="float64") for name, rows in (("a", 1), ("b", 2), ("c", 8), ("d", 1))
]


@pytest.mark.parametrize(
    ("bucket_bytes", "expected"),
    [
        (1, ["a", "b", "c", "d"]),
        (48, ["ab", "c", "d"]),
        (47, ["a", "b", "c", "d"]),
        (1000, ["abcd"]),
        (144, ["ab", "cd"]),
    ],
)
def test_buckets_are_filled_in_order(bucket_bytes, expected):
    assert ["".join(spec.name for spec in bucket) for bucket in fill_buckets(SPECS, bucket_bytes)] == expected


def test_tied_tensors_are_not_sent_and_a_bucket_dies_with_the_next():
    tied = WeightSpec(name="e", shape=(1, 2), dtype="float64", tied_to="a")
    manifest = WeightManifest(entries=(*SPECS[:2], tied))
    buckets = weight_stream(lambda names: {name: torch.ones(1, 2) for name in names}, manifest, 16)

    first = next(buckets)
    assert first.slices[0].tensor.tolist() == [[1.0, 1.0]]
    second = next(buckets)

    assert first.slices[0].tensor.isnan().all()
    assert [(part.name, bucket.index) for bucket in (first, second) for part in bucket.slices] == [("a", 0), ("b", 1)]
    assert list(buckets) == []


def test_a_bucket_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="asked for 0"):
        next(weight_stream(lambda names: {}, WeightManifest(entries=()), 0))
