"""Which roles share which devices. Data only: a runtime turns a pool into processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from rl_core.errors import ConfigError


class ResourcePool:
    """Processes on nodes; worker groups on the same pool take turns on its devices."""

    def __init__(
        self,
        process_on_nodes: Sequence[int] = (),
        max_colocate_count: int = 10,
        n_gpus_per_node: int = 8,
    ) -> None:
        """A pool with the given nodes, in order.

        Args:
            process_on_nodes: processes (one a device) on each node.
            max_colocate_count: worker groups that may share a device at once.
            n_gpus_per_node: devices of a node; a pool cannot ask for more processes on one.

        Raises:
            ConfigError: a node gets no process, or more than it has devices; or a count is below 1.
        """
        for name, value in (("max_colocate_count", max_colocate_count), ("n_gpus_per_node", n_gpus_per_node)):
            if value < 1:
                msg = f"{name} must be at least 1; it is {value}"
                raise ConfigError(msg)
        self.max_colocate_count = max_colocate_count
        self.n_gpus_per_node = n_gpus_per_node
        self._store: list[int] = []
        for processes in process_on_nodes:
            self.add_node(processes)

    def add_node(self, processes: int) -> None:
        """Add a node with ``processes`` processes.

        Raises:
            ConfigError: it is below 1, or above ``n_gpus_per_node``.
        """
        if not 1 <= processes <= self.n_gpus_per_node:
            msg = (
                f"a node of this pool takes 1 to {self.n_gpus_per_node} processes (n_gpus_per_node); asked for "
                f"{processes}"
            )
            raise ConfigError(msg)
        self._store.append(processes)

    @property
    def store(self) -> list[int]:
        """Processes on each node."""
        return list(self._store)

    @property
    def world_size(self) -> int:
        """Processes altogether."""
        return sum(self._store)

    @property
    def local_world_size_list(self) -> list[int]:
        """For each rank, the processes on its node."""
        return [processes for processes in self._store for _ in range(processes)]

    @property
    def local_rank_list(self) -> list[int]:
        """For each rank, its position on its node."""
        return [local_rank for processes in self._store for local_rank in range(processes)]


class ResourcePoolManager:
    """The pools of a run, and which role lives on which."""

    def __init__(
        self,
        resource_pool_spec: Mapping[str, Sequence[int]],
        mapping: Mapping[Enum, str],
        max_colocate_count: int = 3,
    ) -> None:
        """Check the specification; pools are made by ``create_resource_pool``.

        Args:
            resource_pool_spec: pool name -> processes on each of its nodes.
            mapping: role -> name of its pool.
            max_colocate_count: worker groups that may share a device at once.

        Raises:
            ConfigError: a role is on a pool that does not exist, or a pool has no process.
        """
        self.resource_pool_spec = {name: list(nodes) for name, nodes in resource_pool_spec.items()}
        self.mapping = dict(mapping)
        self.max_colocate_count = max_colocate_count
        self.resource_pool_dict: dict[str, ResourcePool] = {}
        for name, nodes in self.resource_pool_spec.items():
            if not nodes or min(nodes) < 1:
                msg = f"resource pool {name!r} needs at least one process on each of its nodes; it says {nodes}"
                raise ConfigError(msg)
        for role, name in self.mapping.items():
            if name not in self.resource_pool_spec:
                known = ", ".join(map(repr, self.resource_pool_spec)) or "none"
                msg = f"role {role} is on resource pool {name!r}, which does not exist; the pools are {known}"
                raise ConfigError(msg)

    def create_resource_pool(self) -> None:
        """Make every pool of the specification."""
        self.resource_pool_dict = {
            name: ResourcePool(nodes, self.max_colocate_count, n_gpus_per_node=max(nodes))
            for name, nodes in self.resource_pool_spec.items()
        }

    def get_resource_pool(self, role: Enum) -> ResourcePool:
        """The pool of ``role``.

        Raises:
            ConfigError: the role is on no pool, or the pools were not created.
        """
        if role not in self.mapping:
            known = ", ".join(map(str, self.mapping)) or "none"
            msg = f"role {role} is on no resource pool; roles with one: {known}"
            raise ConfigError(msg)
        if not self.resource_pool_dict:
            msg = "the resource pools do not exist yet; call create_resource_pool() first"
            raise ConfigError(msg)
        return self.resource_pool_dict[self.mapping[role]]

    def get_n_gpus(self) -> int:
        """Processes of all pools together."""
        return sum(sum(nodes) for nodes in self.resource_pool_spec.values())

    def check_available(self, available: Mapping[str, int]) -> None:
        """Refuse what cannot fit, before anything waits for it.

        Args:
            available: node name -> free devices.

        Raises:
            ConfigError: there are too few devices, or they are spread so that a pool's node cannot find a place. Says
                what was asked and what is there.
        """
        wanted = [processes for nodes in self.resource_pool_spec.values() for processes in nodes]
        enough = sum(wanted) <= sum(available.values())
        # A node with d devices has room for at most d // size of the asks that need at least size devices each.
        fits = all(
            sum(ask >= size for ask in wanted) <= sum(devices // size for devices in available.values())
            for size in set(wanted)
        )
        if enough and fits:
            return
        asked = "; ".join(f"{name}: {_plus(nodes)}" for name, nodes in self.resource_pool_spec.items())
        found = "; ".join(f"{node}: {devices}" for node, devices in available.items()) or "no node"
        reason = "do not fit on the nodes" if enough else "are not there"
        msg = (
            f"{sum(wanted)} devices were asked for and {reason}.\n"
            f"  Asked (pool: devices on each node): {asked}\n"
            f"  Available (node: devices): {found}\n"
            "  Lower trainer.n_gpus_per_node or trainer.nnodes, or add nodes."
        )
        raise ConfigError(msg)


def _plus(counts: Sequence[int]) -> str:
    return " + ".join(map(str, counts))
