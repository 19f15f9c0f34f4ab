"""Batches from rows."""

from __future__ import annotations

import pytest
import torch
from rl_dataproto import ColumnError, DataProto, DataProtoItem, EmptyConcatError, collate_fn
from tensordict import TensorDict
from torch.utils.data import DataLoader


def test_collate_is_the_inverse_of_taking_rows_apart(make_mixed, assert_rows):
    data = make_mixed(6)
    whole = collate_fn(list(data))
    assert whole.meta_info == {}
    whole.meta_info = dict(data.meta_info)
    whole.non_tensor_batch["number"] = whole.non_tensor_batch["number"].astype(float)
    assert whole.equals(data)


def test_a_data_loader_over_a_batch(make_mixed, assert_rows):
    data = make_mixed(6)
    parts = list(DataLoader(data, batch_size=4, collate_fn=collate_fn))
    assert_rows(parts[1], data.select(meta_info_keys=[]), [4, 5])


def test_collate_without_tensors():
    data = DataProto.from_dict(None, {"uid": ["a", "b"]})
    assert collate_fn(list(data)).equals(data)


def test_collate_refuses():
    with pytest.raises(EmptyConcatError, match="no row"):
        collate_fn([])
    one, two = (DataProtoItem(TensorDict({name: torch.zeros(2)}, [])) for name in "xy")
    with pytest.raises(ColumnError, match=r"Row 1 has columns \['y'\], row 0 has \['x'\]"):
        collate_fn([one, two])
    long = DataProtoItem(TensorDict({"x": torch.zeros(3)}, []))
    with pytest.raises(ColumnError, match=r"'x' have shapes \[\(2,\), \(3,\)\]"):
        collate_fn([one, long])
