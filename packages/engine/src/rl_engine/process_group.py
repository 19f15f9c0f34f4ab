"""torch's default process group, shared by the engines of a process and gone with the last of them.

A launcher may have opened it already (torchrun, a runtime's collective); then it is used and left alone.
"""

from __future__ import annotations

import os
import threading
import uuid
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from rl_core.errors import ConfigError, WorkerError
from rl_core.single_controller.base.collective import WorkerContext

DEFAULT_TIMEOUT_S = 600.0
_PROCESS = uuid.uuid4().hex
"""With the process id, names this process: hosts in containers often share their name, and forks this value."""


class _Shared:
    """How many engines of this process use a group that was opened here."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.opened_here = False


_shared = _Shared()


class ProcessGroupLease:
    """One engine's use of the default process group."""

    def __init__(self) -> None:
        """Nothing is opened yet."""
        self._held = False

    def acquire(self, context: WorkerContext, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Join the group, opening it if nobody has. Collective over the workers of ``context``.

        Args:
            context: place of this worker; the address is that of rank 0.
            timeout_s: how long a collective of the group may take.

        Raises:
            ConfigError: workers of one group live in one process, which torch.distributed cannot serve.
            WorkerError: the group that is open is another one, or the peers do not come.
        """
        if self._held:
            return
        require_own_process(context)
        with _shared.lock:
            if dist.is_initialized():
                _check_place(context)
            else:
                _open(context, timeout_s)
                _shared.opened_here = True
            _shared.users += 1
            self._held = True

    def release(self) -> None:
        """Leave the group; whoever leaves last closes what was opened here. A second time does nothing."""
        if not self._held:
            return
        self._held = False
        with _shared.lock:
            _shared.users -= 1
            if _shared.users == 0 and _shared.opened_here:
                _shared.opened_here = False
                if dist.is_initialized():
                    dist.destroy_process_group()


def require_own_process(context: WorkerContext) -> None:
    """Refuse a worker group several of whose members live in one process. Collective.

    Raises:
        ConfigError: on every worker of the group.
    """
    homes = context.collective.all_gather_object((_PROCESS, os.getpid()))
    shared = [rank for rank, home in enumerate(homes) if homes.count(home) > 1]
    if shared:
        msg = (
            f"ranks {shared} of {context.world_size} live in one process, but this training engine needs a process for each "
            "worker. Set trainer.runtime=ray, or use one worker"
        )
        raise ConfigError(msg)


def _open(context: WorkerContext, timeout_s: float) -> None:
    device = torch.device(context.device)
    options: dict[str, Any] = {"rank": context.rank, "world_size": context.world_size}
    if context.world_size == 1:
        # No address, no port: a run of one worker meets nobody.
        options["store"] = dist.HashStore()  # type: ignore[attr-defined]
    else:
        if not context.master_port:
            msg = (
                f"rank {context.rank} of {context.world_size} has no port to meet its peers on (master_port is 0); the runtime "
                "that started the workers must reserve one"
            )
            raise WorkerError(msg)
        options["init_method"] = f"tcp://{context.master_addr}:{context.master_port}"
    try:
        dist.init_process_group(backends_for(device), timeout=timedelta(seconds=timeout_s), **options)
    except (RuntimeError, ValueError) as error:
        msg = (
            f"rank {context.rank} of {context.world_size} could not open a process group at "
            f"{context.master_addr}:{context.master_port} within {timeout_s:g} s: {error}"
        )
        raise WorkerError(msg) from error


def backends_for(device: torch.device) -> str:
    """Backends of a group whose tensors live on ``device``; objects always travel by the CPU."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def _check_place(context: WorkerContext) -> None:
    found = (dist.get_rank(), dist.get_world_size())
    if found != (context.rank, context.world_size):
        msg = (
            f"this worker is rank {context.rank} of {context.world_size}, but the process group that is open in its "
            f"process has it as rank {found[0]} of {found[1]}. Close that group first, or give both the same workers"
        )
        raise WorkerError(msg)
    needed = "nccl" if torch.device(context.device).type == "cuda" else "gloo"
    backend = str(dist.distributed_c10d.get_backend_config(None))
    if needed not in backend:
        msg = f"the open process group speaks {backend!r}; tensors on {context.device} need {needed}"
        raise WorkerError(msg)
