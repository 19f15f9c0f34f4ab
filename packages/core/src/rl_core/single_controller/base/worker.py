"""The base class of everything that a worker group hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rl_core.errors import ConfigError
from rl_core.single_controller.base.collective import Collective, DispatchInfo, WorkerContext
from rl_core.single_controller.base.decorator import Dispatch, Execute, register


class Worker:
    """One member of a group: the same program on every rank, each with its share of the data.

    Subclasses mark what the controller may call with ``register``, and say how data is split over the meshes they
    build with ``register_dispatch_info``.
    """

    def __init__(self, context: WorkerContext) -> None:
        """Take a place in a group.

        Args:
            context: this worker's place in its group.
        """
        self.context = context
        self.fused_worker_dict: dict[str, Worker] = {}
        """The roles of this process by name, this one among them; empty unless it is part of a ``FusedWorker``."""
        self._dispatch_infos: dict[str, DispatchInfo] = {}

    @property
    def rank(self) -> int:
        """Position in the group."""
        return self.context.rank

    @property
    def world_size(self) -> int:
        """Workers in the group."""
        return self.context.world_size

    @property
    def local_rank(self) -> int:
        """Position among the group's workers on this node."""
        return self.context.local_rank

    @property
    def device(self) -> str:
        """Device of this worker, as torch spells it."""
        return self.context.device

    @property
    def collective(self) -> Collective:
        """Meets the other workers of the group."""
        return self.context.collective

    def register_dispatch_info(self, mesh_name: str, *, dp_rank: int, dp_size: int, is_collect: bool) -> None:
        """Say which piece of the data this worker gets on a mesh, and whether it answers for it.

        Raises:
            ConfigError: the mesh was described before; the group may have split by that already.
        """
        if mesh_name in self._dispatch_infos:
            msg = f"{type(self).__name__} describes mesh {mesh_name!r} twice on rank {self.rank}; do it once"
            raise ConfigError(msg)
        self._dispatch_infos[mesh_name] = DispatchInfo(dp_rank, dp_size, is_collect)

    def dispatch_info(self, mesh_name: str) -> DispatchInfo:
        """This worker's part in mesh ``mesh_name``; asked by the group, once.

        Raises:
            ConfigError: the mesh was never described.
        """
        if mesh_name not in self._dispatch_infos:
            known = ", ".join(map(repr, self._dispatch_infos)) or "none"
            msg = (
                f"{type(self).__name__} knows no mesh {mesh_name!r} on rank {self.rank}; it described {known}. Call "
                "register_dispatch_info before the first method that splits over it."
            )
            raise ConfigError(msg)
        return self._dispatch_infos[mesh_name]

    def get_fused_worker_by_name(self, name: str) -> Worker:
        """Another role of this process.

        Raises:
            ConfigError: this process has no such role.
        """
        if name not in self.fused_worker_dict:
            known = ", ".join(map(repr, self.fused_worker_dict)) or "none: this worker is not fused"
            msg = f"no role {name!r} shares this process; its roles are {known}"
            raise ConfigError(msg)
        return self.fused_worker_dict[name]

    @register(dispatch_mode=Dispatch.RANK_ZERO)
    def get_master_addr_port(self) -> tuple[str, int]:
        """Host and port of rank 0, for process groups that workers open themselves."""
        return self.context.master_addr, self.context.master_port

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO_WITH_FUNC)
    def execute_with_func_generator(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run ``func(worker, *args, **kwargs)`` on every worker, batches split over them."""
        return func(self, *args, **kwargs)

    @register(dispatch_mode=Dispatch.ALL_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def execute_func_rank_zero(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run ``func(*args, **kwargs)`` in the process of rank 0."""
        return func(*args, **kwargs)

    def explained(self, error: Exception) -> Exception:
        """What to raise in the place of ``error``, which one of this worker's methods raised; asked by the runtime, once.

        ``error`` itself where it says all there is to say.
        """
        return error

    def close(self) -> None:
        """Give back what the worker holds. Called once when the group ends, also after a failure."""
