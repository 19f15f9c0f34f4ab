"""How workers are grouped: which share one copy of the model, and which share the tokens of a sequence.

::

    fsdp_size=2, ulysses_sequence_parallel_size=4, 8 workers

    rank             0   1   2   3   4   5   6   7
    copy             [ 0   1 ] [ 2   3 ] [ 4   5 ] [ 6   7 ]     shards of one copy; copies add up their gradients
    sequence         [ 0   1   2   3 ] [ 4   5   6   7 ]         tokens of one pack

The two groupings do not depend on each other: a gradient is the sum over all ranks, and each token is on one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist
from rl_core.errors import ConfigError
from rl_engine.sequence_parallel import SequenceParallel
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


@dataclass(frozen=True, eq=False, slots=True)
class Meshes:
    """The groups of one engine.

    Attributes:
        model: what FSDP2 cuts the model over: ``shard``, or ``replicate`` x ``shard``.
        tokens: ``data`` x ``sequence``; None where each rank has sequences of its own.
        sequence: the ranks that share sequences; None for each on its own.
    """

    model: DeviceMesh
    tokens: DeviceMesh | None
    sequence: SequenceParallel | None

    def close(self) -> None:
        """End the groups that were opened for these meshes; each has threads, and on GPUs memory, for as long as it lives."""
        meshes = [mesh for mesh in (self.model, self.tokens) if mesh is not None]
        for group in {group for mesh in meshes for group in mesh.get_all_groups()}:
            if group is not dist.group.WORLD:
                dist.destroy_process_group(group)

    @property
    def shard_group(self) -> ProcessGroup:
        """The ranks that share this rank's copy of the model."""
        return self.model["shard"].get_group()

    @property
    def shard_size(self) -> int:
        """Ranks that share one copy."""
        return self.model["shard"].size()


def shard_size(fsdp_size: int, world_size: int) -> int:
    """Workers that share one copy of the model.

    Raises:
        ConfigError: ``fsdp_size`` is neither -1 nor a divisor of the number of workers.
    """
    if fsdp_size == -1:
        return world_size
    if fsdp_size < 1 or world_size % fsdp_size:
        msg = (
            f"fsdp_config.fsdp_size is {fsdp_size}, but {world_size} workers cannot be cut into groups of {fsdp_size} that "
            "hold a copy of the model each; choose a divisor of the number of workers, or -1 for one copy over all of them"
        )
        raise ConfigError(msg)
    return fsdp_size


def check_reshard(value: bool | int, shards: int) -> None:
    """Refuse a number of ranks that weights cannot stay gathered over.

    Raises:
        ConfigError: it is no divisor of ``shards`` between 1 and it.
    """
    if isinstance(value, bool):
        return
    if not 1 < value < shards or shards % value:
        between = [number for number in range(2, shards) if shards % number == 0]
        msg = (
            f"fsdp_config.reshard_after_forward is {value}: a number must divide the {shards} workers that share a copy of the "
            f"model, and lie between 1 and {shards}; possible are {between or 'none'}, true and false"
        )
        raise ConfigError(msg)


def open_meshes(device_type: str, rank: int, world_size: int, shards: int, sequence_size: int) -> Meshes:
    """Group the workers. Collective.

    Args:
        device_type: ``cpu`` or ``cuda``.
        rank: of this worker.
        world_size: of all.
        shards: workers that share one copy of the model; divides ``world_size``.
        sequence_size: workers that share sequences; divides ``world_size``.
    """
    if shards == world_size:
        model = init_device_mesh(device_type, (world_size,), mesh_dim_names=("shard",))
    else:
        shape = (world_size // shards, shards)
        model = init_device_mesh(device_type, shape, mesh_dim_names=("replicate", "shard"))
    if sequence_size == 1:
        return Meshes(model, None, None)
    shape = (world_size // sequence_size, sequence_size)
    tokens = init_device_mesh(device_type, shape, mesh_dim_names=("data", "sequence"))
    group = tokens["sequence"].get_group()
    return Meshes(model, tokens, SequenceParallel(group, rank % sequence_size, sequence_size))
