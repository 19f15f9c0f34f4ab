"""Batches on a device."""

from __future__ import annotations

import pickle

import pytest
import torch
from rl_dataproto import DataProto, pad_jagged


@pytest.mark.gpu
def test_every_operation_stays_on_the_device(make_mixed, assert_rows):
    data, host = make_mixed(6).to("cuda"), make_mixed(6)
    order = [5, 3, 1, 0, 2, 4]
    results = {
        "chunk": (DataProto.concat(data.chunk(3)), range(6)),
        "slice": (data[1:4], range(1, 4)),
        "step": (data[::-2], [5, 3, 1]),
        "numbers": (data[torch.tensor(order, device="cuda")], order),
        "mask": (data[torch.tensor([True, False] * 3, device="cuda")], [0, 2, 4]),
        "repeat": (data.repeat(2, interleave=False), [*range(6), *range(6)]),
        "counts": (data.sample_level_repeat(torch.tensor([2, 0, 0, 0, 1, 0], device="cuda")), [0, 0, 4]),
    }
    for result, numbers in results.values():
        assert result.batch["ids"].device.type == result.batch["tokens"].device.type == "cuda"
        assert_rows(result.to("cpu"), host, numbers)
    assert pad_jagged(data.batch["tokens"], 0).device.type == "cuda"
    assert data.union(make_mixed(6).to("cuda")).equals(make_mixed(6).to("cuda"))
    back = pickle.loads(pickle.dumps(data))
    assert back.batch["ids"].device.type == "cpu"
    assert back.equals(host)
