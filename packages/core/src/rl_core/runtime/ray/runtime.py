"""The Ray runtime: pools on a cluster, worker groups on pools, and one watchdog over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from rl_core.config.secrets import REDACTED
from rl_core.runtime.ray.cluster import Cluster
from rl_core.runtime.ray.group import RayWorkerGroup
from rl_core.runtime.ray.health import RunHealth
from rl_core.runtime.ray.heartbeat import Board
from rl_core.runtime.ray.link import RunLink
from rl_core.runtime.ray.pool import RayResourcePool, choose_homes
from rl_core.runtime.ray.watchdog import Watchdog, redactor
from rl_core.single_controller.base.fused import ClassWithInitArgs, create_colocated_worker_cls

if TYPE_CHECKING:
    from rl_core.config.ray import RayConfig
    from rl_core.config.trainer import RunConfig
    from rl_core.single_controller.base import WorkerGroup
    from rl_core.single_controller.base.resource_pool import ResourcePoolManager


class RayRuntime:
    """The Ray ``Runtime``: roles of one pool share a process for each device, pools lie side by side."""

    def __init__(
        self, trainer: RunConfig, ray_config: RayConfig, *, collective_deadline_s: float, num_workers: int
    ) -> None:
        """Store the arguments; Ray is not touched before ``worker_groups``.

        Args:
            trainer: device, deadlines and the run folder.
            ray_config: ``ray_kwargs``.
            collective_deadline_s: how long a collective operation of a worker group waits.
            num_workers: processes of the run.
        """
        self._trainer = trainer
        self._ray_config = ray_config
        self._collective_deadline_s = collective_deadline_s
        self._num_workers = num_workers
        self._groups: list[RayWorkerGroup] = []
        self._pools: list[RayResourcePool] = []
        self._cluster: Cluster | None = None
        self._watchdog: Watchdog | None = None

    def worker_groups(
        self, pools: ResourcePoolManager, classes: Mapping[Enum, ClassWithInitArgs]
    ) -> dict[Enum, WorkerGroup]:
        """See ``Runtime``.

        Raises:
            ConfigError: the cluster named cannot be reached, or it is too small.
            DeadlineError: places or actors did not come in time.
        """
        if self._cluster is None:
            self._cluster = Cluster(self._ray_config, num_workers=self._num_workers)
        nodes = self._cluster.nodes()
        on_cuda = self._trainer.device != "cpu" and (
            self._trainer.device == "cuda" or any(node.total.get("GPU") for node in nodes)
        )
        inhabited = {pools.mapping[role] for role in classes}
        used = {name: counts for name, counts in pools.resource_pool_spec.items() if name in inhabited}
        homes = choose_homes(used, nodes, use_gpu=on_cuda)
        link = self._watched(self._cluster, on_cuda=on_cuda)
        groups: dict[Enum, WorkerGroup] = {}
        for name, counts in used.items():
            residents = {role: make for role, make in classes.items() if pools.mapping[role] == name}
            pool = RayResourcePool(counts, on_cuda, name, max_colocate_count=1)
            self._pools.append(pool)
            pool.reserve(nodes, self._trainer.placement_deadline_s, homes[name])
            groups |= self._groups_on(pool, residents, link)
        return groups

    def _watched(self, cluster: Cluster, *, on_cuda: bool) -> RunLink:
        """What the groups share, with a watchdog that has begun to watch."""
        import ray  # noqa: PLC0415 - layers above choose a runtime without loading Ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

        trainer = self._trainer
        # On the driver's own node: a node that is lost takes its workers, not what is known of them.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        board = ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=here)(Board).remote()
        health = RunHealth(redactor(self._ray_config.ray_init.runtime_env.get("env_vars", {}), REDACTED))
        self._watchdog = Watchdog(
            board,
            health,
            trainer.watchdog,
            log_dir=Path(trainer.default_local_dir).expanduser() / "logs",
        )
        self._watchdog.start()
        return RunLink(
            health=health,
            environment=cluster.worker_environment(on_cuda=on_cuda),
            start_deadline_s=trainer.ray_wait_register_center_timeout,
            collective_deadline_s=self._collective_deadline_s,
            board=board,
            beat_s=trainer.watchdog.heartbeat_s,
            watchdog=self._watchdog,
            on_cuda=on_cuda,
            directory=cluster.worker_directory(),
            import_path=cluster.worker_import_path(),
        )

    def _groups_on(
        self, pool: RayResourcePool, residents: Mapping[Enum, ClassWithInitArgs], link: RunLink
    ) -> dict[Enum, WorkerGroup]:
        if len(residents) == 1:
            [(role, make)] = residents.items()
            return {role: self._group(pool, make, str(role), link)}
        fused = create_colocated_worker_cls({str(role): make for role, make in residents.items()})
        whole = self._group(pool, ClassWithInitArgs(fused), "+".join(map(str, residents)), link)
        views = whole.spawn([str(role) for role in residents])
        return {role: views[str(role)] for role in residents}

    def _group(self, pool: RayResourcePool, make: ClassWithInitArgs, name: str, link: RunLink) -> RayWorkerGroup:
        group = RayWorkerGroup(pool, make, name=name, deadline_s=self._trainer.worker_deadline_s, link=link)
        self._groups.append(group)
        return group

    def shutdown(self) -> None:
        """See ``Runtime``."""
        with ExitStack() as stack:
            if self._cluster is not None:
                stack.callback(self._cluster.close)
            if self._watchdog is not None:
                stack.callback(self._watchdog.stop)
            while self._pools:
                stack.callback(self._pools.pop().release)
            while self._groups:
                stack.callback(self._groups.pop().shutdown)
