"""Which runtime a configuration gets. A runtime starts worker groups; the loop does not know which one it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from rl_core.errors import ConfigError

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
    """The runtime that ``trainer.runtime`` asks for; ``auto`` is local for one worker on the CPU only.

    Raises:
        ConfigError: several workers shall share this process, but an engine cannot; or there is no such runtime here.
    """
    trainer = config.trainer
    num_workers = trainer.nnodes * trainer.n_gpus_per_node
    wanted = trainer.runtime
    if wanted == "auto":
        wanted = "local" if num_workers == 1 and trainer.device != "cuda" else "ray"
    if wanted == "ray":
        msg = (
            f"trainer.runtime={trainer.runtime} with {num_workers} workers needs the Ray runtime, which this version "
            "does not have yet. Use trainer.runtime=local: one worker for any engine, several for engines that can "
            "share a process."
        )
        raise ConfigError(msg)
    _check_shared_process(config, registry, num_workers)
    from rl_core.runtime.local_runtime import LocalRuntime  # noqa: PLC0415 - brings torch

    return LocalRuntime(num_workers, deadline_s=trainer.worker_deadline_s)


def _check_shared_process(config: PPOTrainerConfig, registry: Registry, num_workers: int) -> None:
    if num_workers == 1:
        return
    actor_rollout_ref = config.actor_rollout_ref
    for kind, name in (("backend", actor_rollout_ref.actor.strategy), ("rollout", actor_rollout_ref.rollout.name)):
        if "shared_process" not in registry.record(kind, name).capabilities:
            msg = (
                f"trainer.runtime=local with {num_workers} workers puts them all into one process, which the {kind} "
                f"{name!r} cannot share. Use trainer.runtime=ray, or one worker."
            )
            raise ConfigError(msg)
