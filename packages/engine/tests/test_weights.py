import pytest
import torch
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_core.errors import ConfigError
from rl_engine.weights import build_manifest, fill_buckets, spec_bytes, weight_stream


def manifest(wire_dtype=None):
    embed = torch.zeros(4, 2)
    named = [("embed", embed), ("norm", torch.zeros(2)), ("steps", torch.zeros(1, dtype=torch.int64)), ("head", embed)]
    return build_manifest(named, wire_dtype=wire_dtype, owner_ranks=lambda tensor: tuple(range(len(tensor))))


def test_names_shapes_owners_and_twins():
    entries = manifest().entries
    assert [(spec.name, spec.shape, spec.dtype, spec.tied_to) for spec in entries] == [
        ("embed", (4, 2), "float32", None),
        ("norm", (2,), "float32", None),
        ("steps", (1,), "int64", None),
        ("head", (4, 2), "float32", "embed"),
    ]
    assert entries[1].owner_ranks == (0, 1)
    assert [spec.name for spec in manifest().sent] == ["embed", "norm", "steps"]


def test_only_floating_point_takes_the_wire_format():
    assert [spec.dtype for spec in manifest(torch.bfloat16).entries] == ["bfloat16", "bfloat16", "int64", "bfloat16"]


def spec(name, numbers):
    return WeightSpec(name=name, shape=(numbers,), dtype="float32")


def test_buckets_keep_order_and_size():
    specs = [spec("a", 2), spec("b", 2), spec("c", 3), spec("d", 9), spec("e", 1)]
    assert [[one.name for one in bucket] for bucket in fill_buckets(specs, 16)] == [["a", "b"], ["c"], ["d"], ["e"]]
    assert spec_bytes(specs[3]) == 36


def test_a_bucket_holds_a_byte():
    with pytest.raises(ConfigError, match="at least one byte; asked for 0"):
        fill_buckets([], 0)


def test_the_stream_asks_for_a_bucket_at_a_time():
    asked = []

    def gather(specs):
        asked.append([one.name for one in specs])
        return [torch.zeros(one.shape) for one in specs]

    stream = weight_stream(WeightManifest(entries=(spec("a", 2), spec("b", 3), spec("c", 1))), 16, gather)
    first = next(stream)
    assert asked == [["a"]]
    assert (first.index, [part.name for part in first.slices]) == (0, ["a"])
    assert [(bucket.index, [part.name for part in bucket.slices]) for bucket in stream] == [(1, ["b", "c"])]
