"""Unions of column sets, as functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rl_dataproto import ConflictError, RowCountError, union_numpy_dict, union_tensor_dict
from tensordict import TensorDict


def test_union_tensor_dict_leaves_both_sides_alone():
    left, right = TensorDict({"x": torch.zeros(2)}, [2]), TensorDict({"y": torch.ones(2), "x": torch.zeros(2)}, [2])
    joined = union_tensor_dict(left, right)
    assert sorted(joined.keys()) == ["x", "y"]
    assert list(left.keys()) == ["x"]
    assert joined["x"].data_ptr() == left["x"].data_ptr()
    with pytest.raises(ConflictError, match="'x'"):
        union_tensor_dict(left, TensorDict({"x": torch.ones(2)}, [2]))
    with pytest.raises(RowCountError, match=r"\[2\] and \[3\]"):
        union_tensor_dict(left, TensorDict({}, [3]))


def test_union_tensor_dict_declares_a_device_only_when_both_do():
    cpu = TensorDict({"x": torch.zeros(2)}, [2], device="cpu")
    assert union_tensor_dict(cpu, TensorDict({"y": torch.zeros(2)}, [2], device="cpu")).device == torch.device("cpu")
    assert union_tensor_dict(cpu, TensorDict({"y": torch.zeros(2)}, [2])).device is None


def test_union_numpy_dict_leaves_both_sides_alone():
    left, right = {"a": np.array([float("nan"), "x"], object)}, {"b": np.arange(2)}
    joined = union_numpy_dict(left, {**right, "a": left["a"].copy()})
    assert list(joined) == ["a", "b"]
    assert list(left) == ["a"]
    with pytest.raises(ConflictError, match=r"'a'.*row 1 is 'x' on one side and 'y'"):
        union_numpy_dict(left, {"a": np.array([float("nan"), "y"], object)})
    with pytest.raises(ConflictError, match=r"\(2,\) int64, the other \(3,\) int64"):
        union_numpy_dict(right, {"b": np.arange(3)})
