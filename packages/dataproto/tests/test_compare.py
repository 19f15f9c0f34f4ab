"""Deep equality, missing values included."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from rl_dataproto import deep_equal, jagged_from_rows
from rl_dataproto.compare import brief, equal_columns
from tensordict import TensorDict

NAN = float("nan")


@dataclasses.dataclass
class Point:
    x: float
    tags: list


class Same:
    def __eq__(self, other):
        return isinstance(other, Same)

    __hash__ = None


EQUAL = [
    (NAN, float("nan")),
    (np.float32(NAN), NAN),
    (1, 1.0),
    (np.int64(3), 3),
    (True, np.bool_(True)),
    (None, None),
    ("a", "a"),
    ([1, [2, NAN]], [1, [2, NAN]]),
    ({"a": NAN, "b": {"c": None}}, {"b": {"c": None}, "a": NAN}),
    ((1, (2, NAN)), (1, (2, NAN))),
    ({1, 2}, {2, 1}),
    (np.array([1.0, NAN]), np.array([1.0, NAN])),
    (np.array(["a", None, NAN], dtype=object), np.array(["a", None, NAN], dtype=object)),
    (np.array(["a"]), np.array(["a"], dtype="<U9")),
    (np.array(["NaT"], dtype="datetime64[s]"), np.array(["NaT"], dtype="datetime64[s]")),
    (torch.tensor([NAN, 1]), torch.tensor([NAN, 1])),
    (torch.tensor([complex(NAN, 0)]), torch.tensor([complex(NAN, 0)])),
    (Point(NAN, [1]), Point(NAN, [1])),
    (Same(), Same()),
    (jagged_from_rows([torch.arange(2), torch.arange(1)]), jagged_from_rows([torch.arange(2), torch.arange(1)])),
    (TensorDict({"a": torch.tensor([NAN])}, [1]), TensorDict({"a": torch.tensor([NAN])}, [1])),
]
DIFFERENT = [
    (NAN, 0.0),
    (NAN, None),
    (1, True),
    (1, "1"),
    (None, 0),
    ([1], (1,)),
    ([1], [1, 2]),
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, {"a": 2}),
    ({1}, {2}),
    (np.arange(2), np.arange(3)),
    (np.arange(2), np.arange(2.0)),
    (np.arange(2), [0, 1]),
    (np.array([1, 2], dtype=object), np.array([1, 2])),
    (torch.arange(2), torch.arange(2.0)),
    (torch.arange(2), torch.arange(2).reshape(1, 2)),
    (torch.arange(2), np.arange(2)),
    (Point(1, [1]), Point(1, [2])),
    (Same(), Point(1, [])),
    (jagged_from_rows([torch.arange(2), torch.arange(1)]), jagged_from_rows([torch.arange(1), torch.arange(2)])),
    (TensorDict({"a": torch.zeros(1)}, [1]), TensorDict({"b": torch.zeros(1)}, [1])),
]


@pytest.mark.parametrize(("left", "right"), EQUAL)
def test_equal(left, right):
    assert deep_equal(left, right)
    assert deep_equal(right, left)
    assert deep_equal([{"k": left}], [{"k": right}])


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_different(left, right):
    assert not deep_equal(left, right)
    assert not deep_equal(right, left)
    assert not deep_equal([{"k": left}], [{"k": right}])


def cyclic(end):
    ring: list = [1, {"self": None}]
    ring[1]["self"] = ring
    ring.append(end)
    array = np.empty(2, dtype=object)
    array[:] = [ring, None]
    array[1] = array
    return array


def test_cycles_end():
    assert deep_equal(cyclic(NAN), cyclic(NAN))
    assert not deep_equal(cyclic(1), cyclic(2))


def test_nesting_deeper_than_the_call_stack():
    left: list = []
    right: list = []
    for _ in range(20_000):
        left, right = [left], [right]
    assert deep_equal(left, right)
    # Taken apart by hand: the interpreter frees nested lists by recursion.
    while left:
        left, right = left[0], right[0]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.bfloat16, torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (4, 4), (0, 2), ()], ids=str)
def test_tensors_of_every_layout(dtype, shape):
    left = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    assert equal_columns(left, left.clone())
    assert equal_columns(left.mT.contiguous().mT if left.ndim == 2 else left, left.clone())
    if left.numel():
        other = left.clone()
        other.view(-1)[-1] = 1 - int(other.view(-1)[-1].real)
        assert not equal_columns(left, other)
    assert not equal_columns(left, left.unsqueeze(0))


def test_equal_values_with_other_bits():
    assert equal_columns(torch.tensor([0.0, NAN]), torch.tensor([-0.0, -NAN]))
    assert equal_columns(torch.tensor([1 - 2j]), torch.tensor([1 + 2j]).conj())
    assert equal_columns(torch.ones(2, requires_grad=True), torch.ones(2))


def test_columns_of_one_memory_are_equal_without_reading():
    column = torch.full((3,), math.nan)
    assert equal_columns(column, column.view(3))
    assert not equal_columns(column, np.array([1.0]))


def test_brief_cuts_long_values():
    assert brief("x" * 200) == "'" + "x" * 76 + "..."
    assert brief([1]) == "[1]"
