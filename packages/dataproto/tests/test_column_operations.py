"""Which columns a batch has."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from rl_dataproto import (
    ColumnError,
    ColumnHandle,
    ConflictError,
    DataProto,
    DataProtoTypeError,
    MissingColumnError,
    RowCountError,
    jagged_from_rows,
)
from tensordict import TensorDict

NAN = float("nan")


def test_select_keeps_what_is_named(make_mixed):
    data = make_mixed(4, stop=[1])
    part = data.select(["ids", "tokens"], ["uid"], ["stop"])
    assert list(part.batch.keys()) == ["ids", "tokens"]
    assert list(part.non_tensor_batch) == ["uid"]
    assert part.meta_info == {"stop": [1]}
    assert part.batch["ids"].data_ptr() == data.batch["ids"].data_ptr()
    assert data.select().equals(data)
    nothing = data.select([], [], [])
    assert (len(nothing), nothing.num_columns, nothing.meta_info) == (4, 0, {})
    assert list(data.select("ids", []).batch.keys()) == ["ids"]


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"batch_keys": ["idss"]}, "No tensor column 'idss': did you mean 'ids'"),
        ({"non_tensor_batch_keys": ["uids"]}, "No non-tensor column 'uids'"),
        ({"meta_info_keys": ["temprature"]}, "No metadata key 'temprature': did you mean 'temperature'"),
        ({"batch_keys": ["uid"]}, "No tensor column 'uid'"),
    ],
)
@pytest.mark.parametrize("method", ["select", "pop"])
def test_a_missing_name_is_said_as_a_sentence(make_mixed, method, kwargs, words):
    data = make_mixed(2)
    with pytest.raises(KeyError) as caught:
        getattr(data, method)(**kwargs)
    assert isinstance(caught.value, MissingColumnError)
    assert str(caught.value).startswith(words)
    assert data.equals(make_mixed(2))


def test_select_without_tensors():
    data = DataProto.from_dict(non_tensors={"uid": ["a"]})
    assert data.select(non_tensor_batch_keys=["uid"]).batch is None
    with pytest.raises(MissingColumnError, match="there are none"):
        data.select(["x"])


def test_deepcopy_shares_nothing(make_mixed):
    data = make_mixed(3, config={"a": [1]})
    for twin in (data.select(deepcopy=True), copy.deepcopy(data)):
        assert twin.equals(data)
        assert twin.batch["ids"].data_ptr() != data.batch["ids"].data_ptr()
        twin.non_tensor_batch["cell"][2].append(3)
        twin.meta_info["config"]["a"].append(2)
        assert data.non_tensor_batch["cell"][2] == [1, 2]
        assert data.meta_info["config"] == {"a": [1]}


def test_copy_shares_tensors_and_not_dictionaries(make_mixed):
    data = make_mixed(2)
    twin = copy.copy(data)
    twin.batch["new"] = torch.zeros(2)
    twin.meta_info["new"] = 1
    assert "new" not in list(data.batch.keys())
    assert "new" not in data.meta_info
    assert twin.batch["ids"].data_ptr() == data.batch["ids"].data_ptr()


def test_clone_may_be_written_to(make_mixed):
    data = make_mixed(2)
    twin = data.clone()
    twin.batch["ids"][:] = -1
    twin.batch["tokens"].values()[:] = -1
    assert data.equals(make_mixed(2))


def test_pop_removes_and_returns(make_mixed):
    data = make_mixed(3, stop=1)
    held = data.batch
    popped = data.pop(["ids"], ["uid"], ["stop"])
    assert list(popped.batch.keys()) == ["ids"]
    assert popped.non_tensor_batch["uid"].tolist() == ["u0", "u1", "u2"]
    assert popped.meta_info == {"stop": 1}
    assert "ids" not in list(data.batch.keys())
    assert "uid" not in data.non_tensor_batch
    assert data.meta_info == {"temperature": 1.0}
    assert "ids" in list(held.keys())
    rest = list(data.batch.keys())
    data.pop(rest, list(data.non_tensor_batch))
    assert len(data) == 3
    assert data.pop(meta_info_keys=["temperature"]).batch is None


def test_rename_in_place(make_mixed):
    data = make_mixed(2)
    assert data.rename(["ids", "uid"], ["input_ids", "key"]) is data
    assert data.batch["input_ids"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert data.non_tensor_batch["key"].tolist() == ["u0", "u1"]
    assert not {"ids", "uid"} & {*data.batch.keys(), *data.non_tensor_batch}
    data.rename("flag", "mask")
    data.rename(["mask", "half"], ["half", "mask"])
    assert data.batch["half"].dtype == torch.bool


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        (3, "x", DataProtoTypeError, "rename got 3"),
        (["ids", 3], ["a", "b"], DataProtoTypeError, r"\['ids', 3\]"),
        (["ids"], ["a", "b"], ColumnError, "1 old names.*2 new names"),
        ("no", "x", MissingColumnError, "No column 'no'"),
        ("ids", "uid", ConflictError, r"\['uid'\]"),
        (["ids", "half"], ["x", "x"], ConflictError, r"\['x'\]"),
        (["ids", "ids"], ["x", "y"], ConflictError, "more than one column"),
    ],
)
def test_rename_refuses(make_mixed, old, new, error, words):
    with pytest.raises(error, match=words):
        make_mixed(2).rename(old, new)


def test_union_adds_columns_in_place_and_leaves_the_other_alone(make_mixed):
    data = make_mixed(2)
    held = data.batch
    scores = DataProto.from_dict({"reward": torch.ones(2)}, {"why": ["a", "b"]}, {"reward_model": "rm"})
    assert data.union(scores) is data
    assert data.batch["reward"].tolist() == [1, 1]
    assert data.non_tensor_batch["why"].tolist() == ["a", "b"]
    assert data.meta_info == {"temperature": 1.0, "reward_model": "rm"}
    assert scores.num_columns == 2
    assert "reward" not in list(held.keys())


def test_union_of_a_batch_with_its_own_copy_changes_nothing(make_mixed):
    data = make_mixed(6)
    assert data.union(copy.deepcopy(data)).equals(make_mixed(6))


@pytest.mark.parametrize(
    ("left", "right", "rows"),
    [
        (lambda: DataProto(), lambda: DataProto.from_dict({"x": torch.arange(3)}), 3),
        (lambda: DataProto.from_dict({"x": torch.arange(3)}), lambda: DataProto(), 3),
        (lambda: DataProto(), lambda: DataProto(), 0),
        (lambda: DataProto(TensorDict({}, [0])), lambda: DataProto.from_dict({"x": torch.arange(3)}), 3),
        (lambda: DataProto(TensorDict({}, [3])), lambda: DataProto.from_dict({"x": torch.arange(3)}), 3),
        (lambda: DataProto.from_dict(None, {"u": ["a"]}), lambda: DataProto.from_dict({"x": torch.arange(1)}), 1),
        (lambda: DataProto.from_dict({"x": torch.arange(1)}), lambda: DataProto.from_dict(None, {"u": ["a"]}), 1),
    ],
)
def test_union_with_an_empty_side(left, right, rows):
    data = left()
    data.meta_info["a"] = 1
    other = right()
    other.meta_info["b"] = 2
    data.union(other)
    data.check_consistency()
    assert len(data) == rows
    assert data.meta_info == {"a": 1, "b": 2}


def test_union_of_other_rows_is_refused():
    three, two = (DataProto.from_dict({"x": torch.arange(n)}) for n in (3, 2))
    with pytest.raises(RowCountError, match="3 rows with 2 rows"):
        three.union(two)
    with pytest.raises(RowCountError, match="3 rows with 0 rows"):
        three.union(two[:0])
    with pytest.raises(DataProtoTypeError, match="a dict"):
        three.union({"x": 1})


@pytest.mark.parametrize(
    "cells",
    [
        [NAN, "x", None],
        [[1, [2, NAN]], {"a": NAN}, (NAN, {"b": [None]})],
        [np.array([1.0, NAN]), np.arange(3), torch.tensor([NAN])],
    ],
    ids=["scalars", "containers", "arrays"],
)
def test_B03_union_of_equal_object_columns_with_missing_values(cells):
    left, right = (DataProto.from_dict(non_tensors={"meta": copy.deepcopy(cells)}) for _ in range(2))
    assert left.non_tensor_batch["meta"] is not right.non_tensor_batch["meta"]
    merged = left.union(right)
    assert len(merged) == 3


def test_B03_union_of_different_object_columns_names_column_row_and_cells():
    left, right = (DataProto.from_dict(non_tensors={"meta": [NAN, text, None]}) for text in ("x", "y"))
    with pytest.raises(ConflictError, match=r"'meta'.*row 1 is 'x' on one side and 'y' on the other"):
        left.union(right)
    assert left.non_tensor_batch["meta"][1] == "x"


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (torch.tensor([1, 2]), torch.tensor([1, 3]), r"row 1 is tensor\(2\)"),
        (torch.tensor([1, 2]), torch.tensor([1.0, 2.0]), "dense torch.int64, the other dense torch.float32"),
        (torch.zeros(2, 1), torch.zeros(2, 2), r"shapes are \(2, 1\) and \(2, 2\)"),
        (
            jagged_from_rows([torch.arange(1), torch.arange(2)]),
            jagged_from_rows([torch.arange(1), torch.arange(3)]),
            r"row 1 is tensor\(\[0, 1\]\)",
        ),
        (torch.zeros(2), jagged_from_rows([torch.zeros(1)] * 2), "dense torch.float32, the other jagged"),
    ],
)
def test_union_of_different_tensor_columns_says_where(left, right, words):
    with pytest.raises(ConflictError, match=f"'x'.*{words}"):
        DataProto.from_dict({"x": left}).union(DataProto.from_dict({"x": right}))


def test_union_of_tensors_takes_nan_for_nan():
    left, right = (DataProto.from_dict({"x": torch.tensor([NAN, 1.0])}) for _ in range(2))
    assert len(left.union(right)) == 2


def test_union_refuses_one_name_for_two_kinds_of_columns():
    tensor, other = DataProto.from_dict({"x": torch.zeros(1)}), DataProto.from_dict(None, {"x": ["a"]})
    for left, right in ((tensor, other), (other, tensor)):
        with pytest.raises(ConflictError, match="'x' is a tensor column on one side"):
            left.union(right)


def test_union_that_fails_changes_nothing():
    left = DataProto.from_dict({"x": torch.zeros(1)}, meta_info={"temperature": 1.0})
    right = DataProto.from_dict({"y": torch.zeros(1)}, meta_info={"temperature": 0.5})
    with pytest.raises(ConflictError, match=r"'temperature' is 1\.0 on one side.*0\.5"):
        left.union(right)
    assert list(left.batch.keys()) == ["x"]


def test_union_of_different_handles_is_a_conflict(make_mixed):
    data = make_mixed(2)
    source = data.non_tensor_batch["image"].sources[0]
    same = DataProto.from_dict(None, {"image": ColumnHandle(source, [1000, 1001])})
    assert len(data.union(same)) == 2
    with pytest.raises(ConflictError, match="'image'"):
        data.union(DataProto.from_dict(None, {"image": ColumnHandle(source, [1000, 1002])}))


def test_to_moves_tensors_in_place_and_declares_the_device(make_mixed):
    data = make_mixed(2)
    held = data.batch
    assert data.to("cpu") is data
    assert data.batch.device == torch.device("cpu")
    assert held.device is None
    assert data[:1].batch.device == torch.device("cpu")
    assert data.equals(make_mixed(2))
    assert DataProto().to("cpu").batch is None


def test_resolve_handles_reads_on_demand(make_mixed):
    data = make_mixed(3)[[2, 0]]
    read = data.resolve_handles()
    assert read.non_tensor_batch["image"].tolist() == [[1002, 1002.5], [1000, 1000.5]]
    assert isinstance(data.non_tensor_batch["image"], ColumnHandle)
    assert data.resolve_handles("image").non_tensor_batch["image"].shape == (2, 2)
    with pytest.raises(ColumnError, match="'uid' is a ndarray, not a handle"):
        data.resolve_handles(["uid"])
    with pytest.raises(MissingColumnError, match="'imag'"):
        data.resolve_handles(["imag"])
