"""A batch with every kind of column, and a check of its rows one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from rl_dataproto import ColumnHandle, DataProto, deep_equal, jagged_from_rows
from tensordict import TensorDict


@dataclass(frozen=True)
class CountingSource:
    """Row r reads as [r, r + 0.5]; remembers nothing, so that equal sources are equal."""

    name: str = "images"

    def read(self, rows):
        return np.stack([rows, rows + 0.5], axis=1)


def ragged_3d(lengths):
    """Position ids [B, 3, j]: row b holds 100 b + place in each of three lines."""
    values = torch.cat([100 * b + torch.arange(3 * n).reshape(3, n) for b, n in enumerate(lengths)], dim=1)
    offsets = torch.tensor([0, *np.cumsum(lengths)])
    return torch.nested.nested_tensor_from_jagged(values, offsets, jagged_dim=2)


@pytest.fixture
def make_mixed():
    def make(num_rows: int = 6, **meta) -> DataProto:
        lengths = [(3 * row + 1) % 4 for row in range(num_rows)]  # 1 0 3 2 1 0: one row in four is empty
        tokens = [torch.arange(n) + 10 * row for row, n in enumerate(lengths)]
        return DataProto.from_dict(
            tensors={
                "ids": torch.arange(3 * num_rows).reshape(num_rows, 3),
                "half": (torch.arange(2 * num_rows).reshape(num_rows, 2) / 4).to(torch.bfloat16),
                "flag": torch.arange(num_rows) % 2 == 0,
                "tokens": jagged_from_rows(tokens),
                "log_probs": jagged_from_rows([-row.float() for row in tokens]),
                "positions": ragged_3d(lengths),
                "inner": TensorDict({"a": torch.arange(num_rows), "b": jagged_from_rows(tokens)}, [num_rows]),
            },
            non_tensors={
                "uid": [f"u{row}" for row in range(num_rows)],
                "cell": [None, float("nan"), [1, 2], {"a": np.arange(2)}, np.arange(3), "x"][:num_rows]
                + ["more"] * (num_rows - 6),
                "number": np.arange(num_rows) * 0.5,
                "image": ColumnHandle(CountingSource(), np.arange(num_rows) + 1000),
            },
            meta_info={"temperature": 1.0, **meta},
        )

    return make


@pytest.fixture
def assert_rows():
    def check(result: DataProto, source: DataProto, numbers) -> None:
        """Row i of the result equals row numbers[i] of the source, in every column."""
        numbers = list(numbers)
        assert len(result) == len(numbers)
        assert list(result.batch.keys()) == list(source.batch.keys())
        assert list(result.non_tensor_batch) == list(source.non_tensor_batch)
        result.check_consistency()
        for place, number in enumerate(numbers):
            got, want = result[place], source[number]
            for name, value in want.batch.items():
                assert deep_equal(got.batch.get(name), value), (name, place)
            for name, value in want.non_tensor_batch.items():
                assert deep_equal(got.non_tensor_batch[name], value), (name, place)
        for name, column in source.batch.items():
            assert result.batch.get(name).dtype == column.dtype if isinstance(column, torch.Tensor) else True
            assert getattr(result.batch.get(name), "is_nested", False) == getattr(column, "is_nested", False)

    return check
