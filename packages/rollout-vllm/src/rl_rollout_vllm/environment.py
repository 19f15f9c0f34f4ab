"""What the engine's own processes inherit: devices, threads, logging. The worker's own variables are as before afterwards."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from rl_core.errors import ConfigError
from rl_core.single_controller.base.collective import WorkerContext

from rl_rollout_vllm.owner import owner_variable
from rl_rollout_vllm.settings import Replica

_STARTING = threading.Lock()
"""Variables belong to the process, which may hold several workers."""

_OF_THE_TRAINER: Final = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID"),
)
"""Where the worker stands in the trainer's process group; the engine's processes make a group of their own."""

_ALLOCATOR: Final = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
Variables = Mapping[str, str | None]
"""Name -> value; None removes it."""


def gather_devices(context: WorkerContext, replica: Replica) -> list[str]:
    """The devices of all workers of the replica, as ``CUDA_VISIBLE_DEVICES`` names them. Collective over all workers.

    Raises:
        ConfigError: the workers of the replica stand on several hosts, or share a device.
    """
    mine = (socket.gethostname(), _own_device(context))
    everybody = context.collective.all_gather_object(mine)
    first = replica.index * replica.span
    members = everybody[first : first + replica.span]
    hosts = sorted({host for host, _ in members})
    devices = [device for _, device in members]
    if len(hosts) > 1:
        msg = (
            f"replica {replica.index} of rollout 'vllm' spans {replica.span} workers on the hosts {', '.join(hosts)}; a "
            "replica must stand on one. Lower rollout.tensor_model_parallel_size, or place its workers together"
        )
        raise ConfigError(msg)
    if context.device.startswith("cuda") and len(set(devices)) < len(devices):
        msg = (
            f"replica {replica.index} of rollout 'vllm' spans {replica.span} workers, but they share devices "
            f"({', '.join(devices)}); give each worker its own, or set rollout.tensor_model_parallel_size=1"
        )
        raise ConfigError(msg)
    return devices


def _own_device(context: WorkerContext) -> str:
    """What the worker's device is called outside of this process."""
    kind, _, number = context.device.partition(":")
    if kind != "cuda":
        return context.device
    index = int(number or context.local_rank)
    visible = os.environ.get(_DEVICES)
    if visible:
        names = [name.strip() for name in visible.split(",")]
        return names[index] if index < len(names) else names[0]
    return str(index)


def engine_variables(
    context: WorkerContext, replica: Replica, devices: Sequence[str], *, deterministic: bool, start_deadline_s: float
) -> dict[str, str | None]:
    """What differs in the engine's processes from the worker's. What a user has set stays."""
    found: dict[str, str | None] = dict.fromkeys(_OF_THE_TRAINER)
    # A worker has threads and may hold a CUDA context; neither survives a fork.
    found["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    found |= _unless_set("VLLM_ENGINE_READY_TIMEOUT_S", str(int(start_deadline_s)))
    found |= _unless_set("VLLM_NO_USAGE_STATS", "1")
    found |= owner_variable()
    if context.device.startswith("cuda"):
        if deterministic:
            found["VLLM_BATCH_INVARIANT"] = "1"
        found[_DEVICES] = ",".join(devices)
        found |= {name: _without_segments(os.environ[name]) for name in _ALLOCATOR if name in os.environ}
    else:
        if replica.span == 1:
            # Lets the engine's process be the worker too: it has its threads from here, and no other one to start.
            found["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        # Binding to cores is for a machine that serves and does nothing else.
        found |= _unless_set("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        found |= _unless_set("OMP_NUM_THREADS", str(_threads(context)))
        # vLLM compiles some small functions at their first call, which takes longer on a CPU than it ever saves.
        found |= _unless_set("TORCHDYNAMO_DISABLE", "1")
    return found


def _unless_set(name: str, value: str) -> dict[str, str | None]:
    return {} if name in os.environ else {name: value}


def _threads(context: WorkerContext) -> int:
    """This worker's part of the machine."""
    return max(1, len(os.sched_getaffinity(0)) // context.local_world_size)


def _without_segments(settings: str) -> str | None:
    """Allocator settings without the one that memory which can sleep does not go with."""
    kept = [part for part in settings.split(",") if not re.match(r"\s*expandable_segments\s*:", part)]
    return ",".join(kept) or None


@contextmanager
def inherited(variables: Variables) -> Iterator[None]:
    """Processes that start inside get ``variables``; one start at a time."""
    with _STARTING:
        before = {name: os.environ.get(name) for name in variables}
        _set(variables)
        try:
            yield
        finally:
            _set(before)


def _set(variables: Variables) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
