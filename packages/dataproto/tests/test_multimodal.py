"""Images of batches in which some rows have none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rl_dataproto import ColumnError, DataProto, gather_multi_modal

ROWS = [
    {"pixel_values": torch.ones(4, 3)},
    {},
    {"pixel_values": None},
    {"pixel_values": torch.full((6, 3), 2.0)},
]


def test_B10_rows_with_and_without_images():
    data = DataProto.from_dict({"x": torch.arange(4)}, {"multi_modal_inputs": ROWS})
    whole = gather_multi_modal(data.non_tensor_batch["multi_modal_inputs"])["pixel_values"]
    assert whole.shape == (10, 3)
    assert whole.sum() == 48
    assert whole[:4].eq(1).all()
    halves = [gather_multi_modal(part.non_tensor_batch["multi_modal_inputs"]) for part in data.chunk(2)]
    assert [half["pixel_values"].shape for half in halves] == [(4, 3), (6, 3)]
    assert gather_multi_modal(data[1:3].non_tensor_batch["multi_modal_inputs"]) == {}


def test_keys_of_later_rows_count_and_arrays_are_taken():
    gathered = gather_multi_modal([None, {"a": np.zeros((1, 2))}, {"b": [1, 2]}, {"a": np.ones((2, 2))}])
    assert gathered["a"].tolist() == [[0, 0], [1, 1], [1, 1]]
    assert gathered["b"].tolist() == [1, 2]
    assert gather_multi_modal([]) == {}


@pytest.mark.parametrize("other", [torch.ones(1, 4), torch.ones(1, 3, dtype=torch.float64), torch.tensor(1.0)])
def test_images_that_do_not_fit_name_both_rows(other):
    with pytest.raises(ColumnError, match=r"'pixel_values' is \(4, 3\) torch.float32 in row 0.*in row 2"):
        gather_multi_modal([ROWS[0], {}, {"pixel_values": other}])
