"""Metadata: copies, joins of parts, joins of sides."""

from __future__ import annotations

from collections import defaultdict, namedtuple

import numpy as np
import pytest
import torch
from rl_dataproto import ConflictError, DataProtoTypeError, copy_meta, merge_meta, union_meta

Pair = namedtuple("Pair", "a b")


def test_copy_makes_new_containers_and_shares_their_values():
    tensor = torch.zeros(1)
    meta = {
        "d": {"l": [1, {"x": 1}]},
        "t": ([1], 2),
        "p": Pair([1], 2),
        "plain": (1, 2),
        "s": {1},
        "dd": defaultdict(list, k=[1]),
        "tensor": tensor,
    }
    twin = copy_meta(meta)
    assert twin == meta
    twin["d"]["l"][1]["x"] = 2
    twin["t"][0].append(2)
    twin["p"].a.append(2)
    twin["s"].add(2)
    twin["dd"]["new"].append(1)
    twin["dd"]["k"].append(2)
    assert meta["d"] == {"l": [1, {"x": 1}]}
    assert meta["t"] == ([1], 2)
    assert meta["p"] == Pair([1], 2)
    assert meta["s"] == {1}
    assert meta["dd"] == {"k": [1]}
    assert twin["tensor"] is tensor
    assert twin["plain"] is meta["plain"]
    assert isinstance(twin["p"], Pair)


def test_copy_of_metadata_that_contains_itself():
    meta: dict = {"l": []}
    meta["l"].append(meta)
    twin = copy_meta(meta)
    assert twin["l"][0] is twin
    assert twin is not meta


def test_metrics_of_all_parts_become_lists():
    parts = [
        {"metrics": {"loss": 0.5, "acc": 0.9}},
        {"metrics": [{"loss": 0.6}, {"loss": 0.7, "extra": 1}]},
        {"metrics": None},
        {},
        {"metrics": {"loss": [0.8, 0.9]}},
    ]
    assert merge_meta(parts) == {"metrics": {"loss": [0.5, 0.6, 0.7, 0.8, 0.9], "acc": [0.9], "extra": [1]}}


def test_joining_in_one_step_or_in_two_gives_the_same():
    parts = [{"metrics": {"loss": float(i)}, "timing": {"gen": float(i)}, "k": 1} for i in range(4)]
    halves = [merge_meta(parts[:2]), merge_meta(parts[2:])]
    assert merge_meta(halves) == merge_meta(parts)
    assert merge_meta(parts) == {"metrics": {"loss": [0.0, 1.0, 2.0, 3.0]}, "timing": {"gen": 3.0}, "k": 1}


def test_metrics_that_are_no_dictionary():
    with pytest.raises(DataProtoTypeError, match="holds a float"):
        merge_meta([{"metrics": 1.0}])


@pytest.mark.parametrize(
    ("left", "right", "joined"),
    [
        ({"timing": {"gen": 1.0}}, {"timing": {"gen": 2.0, "more": 3.0}}, {"timing": {"gen": 2.0, "more": 3.0}}),
        ({"timing_s/gen": 2.0}, {"timing_s/gen": 1.0}, {"timing_s/gen": 2.0}),
        ({"timing_raw": {"a": {"b": 1}}}, {"timing_raw": {"a": {"b": 4}}}, {"timing_raw": {"a": {"b": 4}}}),
        ({"timing": "fast"}, {"timing": "slow"}, {"timing": ["fast", "slow"]}),
        ({"timing": [1.0]}, {"timing": [2.0]}, {"timing": [1.0, 2.0]}),
    ],
)
def test_timings_never_conflict(left, right, joined):
    assert merge_meta([left, right]) == joined
    assert union_meta(left, right) == joined


@pytest.mark.parametrize("value", [float("nan"), None, [1, {"a": np.arange(2)}], torch.tensor([1.0, float("nan")])])
def test_equal_values_join(value):
    assert list(merge_meta([{"k": value}, {"k": value}, {}])) == ["k"]


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (1.0, 0.7, r"'k' is 1\.0 in part 0 and 0\.7 in part 2"),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, r"'k\.a\.c' is 2 in part 0 and 3 in part 2"),
        (torch.zeros(1), torch.ones(1), r"'k' is tensor\(\[0\.\]\)"),
        (None, 1, "'k' is None"),
    ],
)
def test_different_values_conflict_with_key_parts_and_values(left, right, words):
    with pytest.raises(ConflictError, match=words):
        merge_meta([{"k": left}, {}, {"k": right}])


def test_union_joins_metrics_by_name():
    left = {"metrics": {"entropy": 1.0}, "k": [1]}
    right = {"metrics": {"values": 2.0}, "k": [1]}
    assert union_meta(left, right) == {"metrics": {"entropy": 1.0, "values": 2.0}, "k": [1]}
    assert left == {"metrics": {"entropy": 1.0}, "k": [1]}
    assert union_meta({"metrics": None}, right)["metrics"] == {"values": 2.0}
    assert union_meta(left, {"metrics": None})["metrics"] == {"entropy": 1.0}
    with pytest.raises(ConflictError, match=r"'metrics\.entropy' is 1\.0 on one side of the union and 3\.0"):
        union_meta(left, {"metrics": {"entropy": 3.0}})
    with pytest.raises(ConflictError, match=r"'k' is \[1\] on one side of the union and \[2\]"):
        union_meta(left, {"k": [2]})


def test_joins_share_no_container_with_their_arguments():
    parts = [{"a": {"x": 1}, "timing": {"t": 1}}, {"a": {"x": 1}, "timing": {"t": 2}}]
    for joined in (merge_meta(parts), union_meta(*parts)):
        joined["a"]["x"] = 9
        joined["timing"]["t"] = 9
    assert parts == [{"a": {"x": 1}, "timing": {"t": 1}}, {"a": {"x": 1}, "timing": {"t": 2}}]
