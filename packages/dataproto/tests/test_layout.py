"""Groups of rows as a dimension, and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rl_dataproto import (
    ColumnError,
    ColumnHandle,
    DataProto,
    UnevenChunkError,
    fold_batch_dim,
    jagged_from_rows,
    unfold_batch_dim,
)


def batch():
    return DataProto.from_dict(
        {"x": torch.arange(12).reshape(6, 2)}, {"uid": list("abcdef"), "n": np.arange(6)}, {"k": [1]}
    )


def test_fold_and_unfold_are_inverse():
    data = batch()
    folded = fold_batch_dim(data, 2)
    assert len(folded) == 2
    assert folded.batch["x"].shape == (2, 3, 2)
    assert folded.non_tensor_batch["uid"].tolist() == [["a", "b", "c"], ["d", "e", "f"]]
    folded.meta_info["k"].append(2)
    assert data.equals(batch())
    assert unfold_batch_dim(fold_batch_dim(data, 3)).equals(data)
    assert unfold_batch_dim(fold_batch_dim(data, 3), batch_dims=1).batch["x"].shape == (3, 2, 2)


def test_folded_batches_are_batches():
    folded = fold_batch_dim(batch(), 3)
    assert DataProto.concat(folded.chunk(3)).equals(folded)
    assert folded[[2, 0]].non_tensor_batch["uid"].tolist() == [["e", "f"], ["a", "b"]]


def test_fold_refuses():
    for groups in (4, 0):
        with pytest.raises(UnevenChunkError, match=f"6 rows were to be folded into {groups}"):
            fold_batch_dim(batch(), groups)
    jagged = DataProto.from_dict({"j": jagged_from_rows([torch.arange(1), torch.arange(2)])})
    handle = DataProto.from_dict(None, {"h": ColumnHandle(None, [1, 2])})
    for data in (jagged, handle):
        with pytest.raises(ColumnError, match="only dense columns can be folded"):
            fold_batch_dim(data, 1)
        with pytest.raises(ColumnError, match="The first 2 dimensions"):
            unfold_batch_dim(data)


def test_unfold_needs_the_same_dimensions_in_every_column():
    data = DataProto.from_dict({"x": torch.zeros(2, 3), "y": torch.zeros(2, 4)})
    with pytest.raises(ColumnError, match=r"'x': \(2, 3\), 'y': \(2, 4\)"):
        unfold_batch_dim(data)
    with pytest.raises(ColumnError, match=r"\(2,\)"):
        unfold_batch_dim(DataProto.from_dict({"x": torch.zeros(2)}))
