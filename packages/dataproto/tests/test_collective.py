"""All ranks' rows on every rank, over gloo."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from rl_dataproto import DataProto, all_gather_data_proto, jagged_from_rows


def test_one_rank_keeps_its_rows(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        data = DataProto.from_dict({"j": jagged_from_rows([torch.arange(2), torch.arange(1)])}, {"uid": ["a", "b"]})
        before = DataProto.concat([data])
        assert all_gather_data_proto(data) is data
        assert data.equals(before)
    finally:
        dist.destroy_process_group()


CODE = """
import sys
import torch, torch.distributed as dist
from rl_dataproto import DataProto, all_gather_data_proto, jagged_from_rows
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
data = DataProto.from_dict(
    {"x": torch.arange(rank + 1), "j": jagged_from_rows([torch.full((rank + 1,), rank)] * (rank + 1))},
    {"uid": [f"{rank}.{i}" for i in range(rank + 1)]},
    {"rank": rank},
)
all_gather_data_proto(data, dist.group.WORLD)
assert data.batch["x"].tolist() == [0, 0, 1], data
assert [row.tolist() for row in data.batch["j"].unbind()] == [[0], [1, 1], [1, 1]]
assert data.non_tensor_batch["uid"].tolist() == ["0.0", "1.0", "1.1"]
assert data.meta_info == {"rank": rank}
dist.destroy_process_group()
"""


@pytest.mark.heavy
def test_two_ranks_with_different_numbers_of_rows(tmp_path):
    ranks = [subprocess.Popen([sys.executable, "-c", CODE, str(rank), f"{tmp_path}/store"]) for rank in range(2)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
