"""Which runtime a configuration gets. A runtime starts worker groups; the loop does not know which one it has."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import torch

from rl_core.config.roles import pools
from rl_core.config.runtime_choice import cannot_share_a_process, collective_deadline_s, missing_runtime, runtime_name
from rl_core.errors import ConfigError
from rl_core.runtime.local_runtime import LocalRuntime
from rl_core.runtime.ray import RayRuntime

if TYPE_CHECKING:
    from rl_core.config import RunTree
    from rl_core.plugins import Registry
    from rl_core.single_controller.base import WorkerGroup
    from rl_core.single_controller.base.fused import ClassWithInitArgs
    from rl_core.single_controller.base.resource_pool import ResourcePoolManager


class Runtime(Protocol):
    """Starts and ends worker groups."""

    def worker_groups(
        self, pools: ResourcePoolManager, classes: Mapping[Enum, ClassWithInitArgs]
    ) -> dict[Enum, WorkerGroup]:
        """A worker group for each role, with a worker for each device of the role's pool.

        Args:
            pools: which devices each role gets.
            classes: the worker of each role. Roles on one pool share its devices, and where workers are processes, their
                process.
        """

    def shutdown(self) -> None:
        """End every worker that was started; safe to call twice, and after a failure."""


def choose_runtime(config: RunTree, registry: Registry) -> Runtime:
    """The runtime that ``trainer.runtime`` asks for.

    Raises:
        ConfigError: there is no such runtime here, several workers shall share this process but an engine cannot, or
            CUDA is asked for and not there.
    """
    trainer = config.trainer
    has_cuda = torch.cuda.is_available()
    if reason := missing_runtime(config, has_cuda=has_cuda):
        raise ConfigError(reason)
    if runtime_name(config, has_cuda=has_cuda) == "ray":
        return RayRuntime(
            trainer,
            config.ray_kwargs,
            collective_deadline_s=collective_deadline_s(config),
            num_workers=sum(pool.num_workers for pool in pools(config)),
        )
    num_workers = trainer.nnodes * trainer.n_gpus_per_node
    loners = list(cannot_share_a_process(config, registry)) if num_workers > 1 else []
    if loners:
        msg = (
            f"trainer.runtime=local with {num_workers} workers puts them all into one process, which {', '.join(loners)} "
            "cannot share. Use one worker."
        )
        raise ConfigError(msg)
    return LocalRuntime(device_names(trainer.device, num_workers), deadline_s=trainer.worker_deadline_s)


def device_names(device: str, num_workers: int) -> list[str]:
    """Device of each worker of this process.

    Raises:
        ConfigError: fewer CUDA devices than workers.
    """
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "cpu" or (device == "auto" and available == 0):
        return ["cpu"] * num_workers
    if available < num_workers:
        msg = (
            f"trainer.device={device} wants a CUDA device for each of {num_workers} workers, this process sees {available}. "
            "Use trainer.device=cpu, or fewer workers."
        )
        raise ConfigError(msg)
    return [f"cuda:{index}" for index in range(num_workers)]
