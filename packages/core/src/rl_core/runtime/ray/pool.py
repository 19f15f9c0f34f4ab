"""A pool of places on a Ray cluster: one placement group a node, one bundle a device, shared by the groups on it.

On the CPU a "GPU" is a worker process with a CPU of Ray's.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from rl_core.errors import ConfigError, DeadlineError
from rl_core.runtime.ray.cluster import Node
from rl_core.single_controller.base.resource_pool import ResourcePool

Slot = tuple[Any, int]
"""A placement group and a bundle of it."""


class RayResourcePool(ResourcePool):
    """Places for worker processes. Nothing is reserved before ``reserve``."""

    def __init__(
        self,
        process_on_nodes: Sequence[int] = (),
        use_gpu: bool = True,
        name_prefix: str = "pool",
        max_colocate_count: int = 10,
        detached: bool = False,
        n_gpus_per_node: int | None = None,
    ) -> None:
        """As ``ResourcePool``.

        Args:
            process_on_nodes: processes (one a device) on each node.
            use_gpu: whether a process needs a GPU; on the CPU it needs a CPU.
            name_prefix: first part of the placement groups' names.
            max_colocate_count: worker groups that may share a device at once.
            detached: the places outlive the process that reserves them.
            n_gpus_per_node: devices of a node; None asks for no limit.
        """
        super().__init__(process_on_nodes, max_colocate_count, n_gpus_per_node or max([8, *process_on_nodes]))
        self.use_gpu = use_gpu
        self.name_prefix = name_prefix
        self.detached = detached
        self._groups: list[Any] = []
        self._slots: list[Slot] = []

    @property
    def slots(self) -> list[Slot]:
        """A place for each rank, ranks of one node side by side; empty before ``reserve``."""
        return list(self._slots)

    def options(self, rank: int) -> dict[str, Any]:
        """Options of the actor of ``rank``: its place, and its share of the device there."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: PLC0415 - needs Ray running

        group, bundle = self._slots[rank]
        share = 1.0 / self.max_colocate_count
        return {
            "num_cpus": share,
            "num_gpus": share if self.use_gpu else 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle),
        }

    @classmethod
    def from_detached(cls, name_prefix: str, *, use_gpu: bool = True) -> RayResourcePool:
        """The places that some process has reserved with ``detached``; ``release`` gives them back.

        Args:
            name_prefix: of that pool.
            use_gpu: as of that pool.

        Raises:
            ConfigError: there is no such pool.
        """
        from ray.util.placement_group import get_placement_group  # noqa: PLC0415 - as above

        pool = cls((), use_gpu, name_prefix, detached=True)
        names = _detached_names(name_prefix)
        if not names:
            msg = f"no detached pool {name_prefix!r} is reserved on this cluster, in this Ray namespace"
            raise ConfigError(msg)
        pool._groups = [get_placement_group(name) for name in names]
        pool._take_slots()
        return pool

    def reserve(self, nodes: Sequence[Node], deadline_s: float, homes: Sequence[str] | None = None) -> None:
        """Take the places; a second time does nothing.

        Args:
            nodes: of the cluster.
            deadline_s: seconds to wait for places that others hold.
            homes: id of the node for each of this pool's nodes, from ``choose_homes``; None chooses for this pool alone.

        Raises:
            ConfigError: the cluster can never have them, or a detached pool of this name exists.
            DeadlineError: others hold them for longer than that.
        """
        import ray  # noqa: PLC0415 - layers above choose a runtime without loading Ray
        from ray.util.placement_group import placement_group  # noqa: PLC0415

        if self._slots:
            return
        homes = homes or choose_homes({self.name_prefix: self.store}, nodes, use_gpu=self.use_gpu)[self.name_prefix]
        bundle = {"CPU": 1.0, "GPU": 1.0} if self.use_gpu else {"CPU": 1.0}
        lifetime = "detached" if self.detached else None
        if self.detached and _detached_names(self.name_prefix):
            msg = f"a detached pool {self.name_prefix!r} exists; take it with from_detached, or choose another name_prefix"
            raise ConfigError(msg)
        tag = "detached" if self.detached else uuid.uuid4().hex[:6]
        started = time.monotonic()
        try:
            # Ray alone would pack two nodes of a pool onto one machine that has room for both.
            for number, (processes, home) in enumerate(zip(self.store, homes, strict=True)):
                group = placement_group(
                    [bundle] * processes,
                    "STRICT_PACK",
                    name=f"{self.name_prefix}-{tag}-{number}",
                    lifetime=lifetime,
                    bundle_label_selector=[{"ray.io/node-id": home}] * processes,
                )
                self._groups.append(group)
            ready = [group.ready() for group in self._groups]
            _, missing = ray.wait(ready, num_returns=len(ready), timeout=deadline_s)
        except BaseException:
            self.release()
            raise
        if missing:
            self.release()
            msg = (
                f"pool {self.name_prefix!r} was not placed within {time.monotonic() - started:.0f} s "
                "(trainer.placement_deadline_s): others hold the devices.\n"
                f"{resource_table({self.name_prefix: self.store}, nodes, use_gpu=self.use_gpu)}\n"
                "  Wait for the other run, or ask for fewer."
            )
            raise DeadlineError(msg)
        # Rank 0 on the node that comes first in the cluster's order.
        order = {node.node_id: number for number, node in enumerate(nodes)}
        self._groups = [
            group for _, group in sorted(zip(homes, self._groups, strict=True), key=lambda item: order[item[0]])
        ]
        self._take_slots()

    def _take_slots(self) -> None:
        self._store = [len(group.bundle_specs) for group in self._groups]
        self._slots = [(group, number) for group in self._groups for number in range(len(group.bundle_specs))]

    def release(self) -> None:
        """Give the places back; whoever is on them ends."""
        from ray.util.placement_group import remove_placement_group  # noqa: PLC0415 - as above

        for group in self._groups:
            remove_placement_group(group)
        self._groups, self._slots = [], []

    def _part(self, slots: Sequence[Slot], name: str) -> RayResourcePool:
        """A pool over some of this one's places, which stay this one's to release."""
        counts: dict[Any, int] = {}
        for group, _ in slots:
            counts[group.id] = counts.get(group.id, 0) + 1
        part = RayResourcePool(
            list(counts.values()), self.use_gpu, name, self.max_colocate_count, self.detached, self.n_gpus_per_node
        )
        part._slots = list(slots)
        return part


def split_resource_pool(pool: RayResourcePool, sizes: int | Sequence[int]) -> list[RayResourcePool]:
    """Pools over parts of a reserved pool, in the order of its ranks; the places stay the whole pool's.

    Args:
        pool: must be reserved.
        sizes: places of each part; a number cuts into parts of that size.

    Raises:
        ConfigError: the sizes do not use every place exactly once, or nothing is reserved.
    """
    places = pool.slots
    parts = [sizes] * (len(places) // sizes) if isinstance(sizes, int) and sizes > 0 else sizes
    if not places or isinstance(parts, int) or sum(parts) != len(places) or min(parts) < 1:
        found = f"{len(places)} reserved places" if places else "no reserved places; call reserve() first"
        msg = f"pool {pool.name_prefix!r} has {found}; it cannot be split into {sizes}"
        raise ConfigError(msg)
    starts = [sum(parts[:number]) for number in range(len(parts))]
    return [
        pool._part(places[start : start + size], f"{pool.name_prefix}.{number}")
        for number, (start, size) in enumerate(zip(starts, parts, strict=True))
    ]


def merge_resource_pool(first: RayResourcePool, second: RayResourcePool) -> RayResourcePool:
    """One pool over the places of two reserved ones, the first's ranks before the second's.

    Raises:
        ConfigError: they differ in what a place is, or one is not reserved.
    """
    settings = [(pool.use_gpu, pool.max_colocate_count, pool.detached) for pool in (first, second)]
    if settings[0] != settings[1] or not first.slots or not second.slots:
        msg = (
            f"pools {first.name_prefix!r} and {second.name_prefix!r} cannot be merged: both must be reserved and agree in "
            f"(use_gpu, max_colocate_count, detached); they have {settings[0]} and {settings[1]}, "
            f"{len(first.slots)} and {len(second.slots)} places"
        )
        raise ConfigError(msg)
    return first._part([*first.slots, *second.slots], f"{first.name_prefix}+{second.name_prefix}")


def choose_homes(wanted: Mapping[str, Sequence[int]], nodes: Sequence[Node], *, use_gpu: bool) -> dict[str, list[str]]:
    """A node of the cluster for each node of each pool, before anything waits for one.

    Args:
        wanted: pool -> processes on each of its nodes. The nodes of one pool are different machines; pools share machines.
        nodes: of the cluster.
        use_gpu: whether a process needs a GPU besides its CPU.

    Returns:
        Pool -> ids of nodes, those that are free now if that is possible.

    Raises:
        ConfigError: the cluster can never place them, even with nobody else on it. With a table of what was asked and what
            is there, by node.
    """
    resources = ("CPU", "GPU") if use_gpu else ("CPU",)
    for amounts in ("free", "total"):
        rooms = {
            node.node_id: int(min(getattr(node, amounts).get(resource, 0) for resource in resources)) for node in nodes
        }
        if homes := _packed(wanted, rooms):
            return homes
    machines = max(map(len, wanted.values()))
    few = f"  It has {len(nodes)} of the {machines} nodes asked for.\n" if machines > len(nodes) else ""
    msg = (
        f"the cluster is too small for this run.\n{resource_table(wanted, nodes, use_gpu=use_gpu)}\n{few}"
        "  Lower n_gpus_per_node or nnodes of `trainer`, or of the role that has the pool; or add nodes (for a cluster "
        "that is started here: raise ray_kwargs.ray_init.num_cpus)."
    )
    raise ConfigError(msg)


def _packed(wanted: Mapping[str, Sequence[int]], rooms: dict[str, int]) -> dict[str, list[str]] | None:
    """Each node of each pool into the fullest machine that has room for it; None when one finds none.

    The largest first, and of those of equal size the pools on most machines first: exact for the equal sizes that a run
    asks for.
    """
    homes: dict[str, dict[int, str]] = {name: {} for name in wanted}
    asks = [
        (count, len(counts), name, number) for name, counts in wanted.items() for number, count in enumerate(counts)
    ]
    for count, _, name, number in sorted(asks, key=lambda ask: (-ask[0], -ask[1])):
        fitting = [home for home, room in rooms.items() if room >= count and home not in homes[name].values()]
        if not fitting:
            return None
        home = min(fitting, key=rooms.__getitem__)
        rooms[home] -= count
        homes[name][number] = home
    return {name: [chosen[number] for number in range(len(chosen))] for name, chosen in homes.items()}


def resource_table(wanted: Mapping[str, Sequence[int]], nodes: Sequence[Node], *, use_gpu: bool) -> str:
    """What was asked and what there is, by node."""
    resources = ("GPU", "CPU") if use_gpu else ("CPU",)
    lines = [f"  asked ({' and '.join(resources)} for each process; processes on each node)"]
    lines += [f"    {name:<24}{' + '.join(map(str, counts))}" for name, counts in wanted.items()]
    lines.append("  the cluster has")
    for node in nodes:
        found = [
            f"{resource} {node.total.get(resource, 0):g} in all, {node.free.get(resource, 0):g} free"
            for resource in resources
        ]
        lines.append(f"    node {node.ip:<19}{'; '.join(found)}")
    return "\n".join(lines if nodes else [*lines, "    no node"])


def _detached_names(name_prefix: str) -> list[str]:
    """Names of the placement groups of a detached pool, in the order of its ranks."""
    from ray.util.placement_group import placement_group_table  # noqa: PLC0415 - as above

    start = f"{name_prefix}-detached-"
    found = [entry["name"] for entry in placement_group_table().values() if entry["state"] != "REMOVED"]
    return sorted((name for name in found if name.startswith(start)), key=lambda name: int(name.rpartition("-")[2]))
