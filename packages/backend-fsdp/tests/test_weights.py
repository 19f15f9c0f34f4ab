import pytest
import torch
import torch.distributed as dist
from rl_backend_fsdp.weights import WeightGatherer, owner_ranks
from rl_core.contracts.weights import WeightSpec
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard


@pytest.fixture
def mesh():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def sharded(mesh, rows):
    return DTensor.from_local(torch.arange(rows * 2.0).view(rows, 2), mesh, [Shard(0)])


@pytest.mark.parametrize(
    ("rows", "world_size", "owners"),
    [(10, 4, (0, 1, 2, 3)), (9, 4, (0, 1, 2)), (1, 3, (0,)), (3, 2, (0, 1)), (5, 1, (0,))],
)
def test_who_holds_a_piece(mesh, rows, world_size, owners):
    """FSDP2's pieces have ceil(rows / ranks) rows, so that with 9 rows over 4 ranks the last one holds none."""
    assert owner_ranks(sharded(mesh, rows), world_size, world_size) == owners


def test_every_copy_of_the_model_has_the_piece(mesh):
    assert owner_ranks(sharded(mesh, 1), 2, 6) == (0, 2, 4)


def test_what_is_not_sharded_is_everybodys(mesh):
    assert owner_ranks(torch.zeros(3), 2, 3) == (0, 1, 2)


def test_one_rank_hands_out_its_own_tensors_in_the_promised_format(mesh):
    specs = [WeightSpec(name=name, shape=(3, 2), dtype=dtype) for name, dtype in (("a", "float32"), ("b", "bfloat16"))]
    tensor = sharded(mesh, 3)
    first, second = WeightGatherer(mesh.get_group(), torch.device("cpu")).gather(specs, [tensor, tensor])
    assert first.data_ptr() == tensor.to_local().data_ptr()
    assert second.dtype == torch.bfloat16
    assert torch.equal(second.float(), first)
