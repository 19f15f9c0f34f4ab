"""Construction, conversion and the checks between columns."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from rl_dataproto import (
    ColumnError,
    ColumnHandle,
    ConflictError,
    DataProto,
    DataProtoTypeError,
    RowCountError,
    WireError,
)
from tensordict import NonTensorData, NonTensorStack, TensorDict

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch advises against the layout that is to be refused here
    STRIDED = torch.nested.nested_tensor([torch.zeros(1)])


def test_from_dict_builds_without_touching_its_arguments():
    tensors, others, meta = {"x": torch.arange(2)}, {"answer": ["a", ["b"]]}, {"stop": {"ids": [1]}}
    data = DataProto.from_dict(tensors, others, meta, auto_padding=True)
    assert others == {"answer": ["a", ["b"]]}
    assert meta == {"stop": {"ids": [1]}}
    data.meta_info["stop"]["ids"].append(2)
    data.batch["y"] = torch.zeros(2)
    assert meta == {"stop": {"ids": [1]}}
    assert list(tensors) == ["x"]
    assert data.non_tensor_batch["answer"].dtype == object
    assert data.non_tensor_batch["answer"].tolist() == ["a", ["b"]]


def test_lists_of_equal_length_stay_one_cell_a_row():
    data = DataProto.from_dict(non_tensors={"pair": [[1, 2], [3, 4]], "arrays": [np.arange(2), np.arange(2)]})
    assert data.non_tensor_batch["pair"].shape == (2,)
    assert data.non_tensor_batch["arrays"].shape == (2,)
    assert data.batch is None
    assert len(data) == 2


def test_from_single_dict_tells_columns_apart_by_type():
    handle = ColumnHandle(None, [0, 1])
    data = DataProto.from_single_dict(
        {"x": torch.arange(2), "n": np.arange(2), "l": ["a", "b"], "h": handle}, {"k": 1}, auto_padding=True
    )
    assert list(data.batch.keys()) == ["x"]
    assert list(data.non_tensor_batch) == ["n", "l", "h"]
    assert data.is_padding_enabled()
    assert data.meta_info["k"] == 1


@pytest.mark.parametrize(
    ("tensors", "others", "error", "words"),
    [
        ({"x": torch.zeros(2), "y": torch.zeros(3)}, {}, RowCountError, "'y' has 3 rows and column 'x' has 2"),
        ({"x": torch.zeros(2)}, {"u": ["a"]}, RowCountError, "'u' has 1 rows and column 'x' has 2"),
        ({}, {"u": ["a"], "v": []}, RowCountError, "'v' has 0 rows and column 'u' has 1"),
        ({"x": torch.tensor(1.0)}, {}, ColumnError, "'x' is a single number"),
        ({"x": [1, 2]}, {}, DataProtoTypeError, "'x' is a list"),
        ({"x": STRIDED}, {}, ColumnError, "layout=torch.jagged"),
        ({}, {"u": "text"}, DataProtoTypeError, "'u' is a str"),
        ({}, {"u": torch.zeros(1)}, DataProtoTypeError, "'u' is a Tensor"),
        ({}, {"u": np.array(1)}, ColumnError, "'u' is a single value"),
        ({"x": torch.zeros(1)}, {"x": ["a"]}, ConflictError, "'x' is both"),
    ],
)
def test_from_dict_refuses(tensors, others, error, words):
    with pytest.raises(error, match=words):
        DataProto.from_dict(tensors, others)


def test_from_dict_has_one_row_dimension():
    with pytest.raises(ColumnError, match="num_batch_dims=2"):
        DataProto.from_dict({"x": torch.zeros(2, 2)}, num_batch_dims=2)


def test_the_constructor_owns_its_dictionaries():
    others, meta = {"u": np.array(["a"])}, {"metrics": {"loss": 1}}
    data = DataProto(TensorDict({"x": torch.zeros(1)}, [1]), others, meta)
    data.non_tensor_batch["v"] = np.array(["b"])
    data.meta_info["metrics"]["loss"] = 2
    assert list(others) == ["u"]
    assert meta == {"metrics": {"loss": 1}}


@pytest.mark.parametrize(
    ("batch", "others", "error", "words"),
    [
        (TensorDict({}, [2, 2]), {}, ColumnError, r"\[2, 2\]"),
        ({"x": torch.zeros(1)}, {}, DataProtoTypeError, "a dict"),
        (TensorDict({"s": NonTensorStack("a", "b")}, [2]), {}, DataProtoTypeError, "from_tensordict"),
        (TensorDict({"s": NonTensorData("a", batch_size=[2])}, [2]), {}, DataProtoTypeError, "from_tensordict"),
        (None, {"u": ["a"]}, DataProtoTypeError, "'u' is a list"),
        (TensorDict({}, [2]), {"u": np.array(["a"])}, RowCountError, "'u' has 1 rows and the batch has 2"),
    ],
)
def test_the_constructor_refuses(batch, others, error, words):
    with pytest.raises(error, match=words):
        DataProto(batch, others)


def test_length_comes_from_any_column():
    assert len(DataProto()) == 0
    assert len(DataProto(TensorDict({}, [3]))) == 3
    assert len(DataProto.from_dict(None, {"h": ColumnHandle(None, [5, 6])})) == 2


def test_tensordict_round_trip(make_mixed):
    data = make_mixed(6, stop=[1, 2])
    held = data.to_tensordict()
    assert held["cell"][2] == [1, 2]
    back = DataProto.from_tensordict(held)
    assert back.equals(data)
    assert back.non_tensor_batch["number"].dtype == np.float64
    assert DataProto.from_tensordict(make_mixed(6)[:0].to_tensordict()).equals(make_mixed(6)[:0])
    text = DataProto.from_dict(None, {"u": ["a"]}, {"k": 1})
    assert DataProto.from_tensordict(text.to_tensordict()).equals(text)
    assert DataProto.from_tensordict(None).equals(DataProto())


def test_from_tensordict_joins_constants_with_meta():
    source = TensorDict({"x": torch.zeros(2), "k": NonTensorData(1, batch_size=[2])}, [2])
    given = {"other": 2}
    assert DataProto.from_tensordict(source, given).meta_info == {"other": 2, "k": 1}
    assert given == {"other": 2}
    with pytest.raises(ConflictError, match="'k' is 3 on one side"):
        DataProto.from_tensordict(source, {"k": 3})
    with pytest.raises(ColumnError, match="num_batch_dims=2"):
        DataProto.from_tensordict(source, num_batch_dims=2)


def test_to_tensordict_has_one_name_for_each():
    data = DataProto.from_dict({"x": torch.zeros(1)}, meta_info={"x": 1})
    with pytest.raises(ConflictError, match=r"\['x'\]"):
        data.to_tensordict()


def test_equals_looks_at_everything(make_mixed):
    data = make_mixed(3)
    assert data.equals(make_mixed(3))
    assert not data.equals(make_mixed(4))
    assert not data.equals(make_mixed(3, more=1))
    assert not data.equals(make_mixed(3).select(["ids"]))
    changed = make_mixed(3)
    changed.non_tensor_batch["cell"][1] = 0.0
    assert not data.equals(changed)


def test_load_from_disk_gives_a_data_proto(tmp_path, make_mixed):
    file = tmp_path / "batch"
    data = make_mixed(4).select(non_tensor_batch_keys=["uid", "cell", "number"])
    data.save_to_disk(file)
    assert DataProto.load_from_disk(file).equals(data)
    with pytest.raises(WireError, match="does not start like"):
        DataProto.load_from_disk(__file__)


def test_reports_say_what_is_there(make_mixed, capsys):
    data = make_mixed(2)
    data.print_size("step 3")
    printed = capsys.readouterr().out
    assert printed.startswith("step 3, tensor columns 0.000000 GiB")
    info = data.get_data_info().splitlines()
    assert "  ids: (2, 3) int64 cpu" in info
    assert "  tokens: (2, j) int64 cpu" in info
    assert "  uid: ndarray(2) object" in info
    assert "  temperature: float" in info
    assert DataProto(meta_info={"m": {"a": [1, "b"]}}).get_data_info().endswith("m: dict[str: list[int | str]]")
    assert repr(data.select(["ids"], ["uid"])).startswith("DataProto(2 rows, batch={ids: (2, 3) int64 cpu}")
