"""Which runtime a configuration gets. A runtime starts worker groups; the loop does not know which one it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from rl_core.config.runtime_choice import cannot_share_a_process, missing_runtime
from rl_core.errors import ConfigError
from rl_core.runtime.local_runtime import LocalRuntime

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.plugins import Registry
    from rl_core.single_controller.base import Worker, WorkerGroup


class Runtime(Protocol):
    """Starts and ends worker groups."""

    def worker_group(self, name: str, worker_class: type[Worker], *args: Any, **kwargs: Any) -> WorkerGroup:
        """One worker for each device of the role's pool.

        Args:
            name: of the role; stands in errors and logs.
            worker_class: its worker.
            args: further constructor arguments, after the worker context.
            kwargs: keyword arguments of the constructor.
        """

    def shutdown(self) -> None:
        """End every worker that was started; safe to call twice, and after a failure."""


def choose_runtime(config: PPOTrainerConfig, registry: Registry) -> Runtime:
    """The runtime that ``trainer.runtime`` asks for.

    Raises:
        ConfigError: there is no such runtime here, several workers shall share this process but an engine cannot, or
            CUDA is asked for and not there.
    """
    trainer = config.trainer
    has_cuda = torch.cuda.is_available()
    if reason := missing_runtime(config, has_cuda=has_cuda):
        raise ConfigError(reason)
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
