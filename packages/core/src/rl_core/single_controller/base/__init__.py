"""What worker authors and runtimes import."""

from rl_core.single_controller.base.call import Call, CallScope
from rl_core.single_controller.base.collective import Collective, DispatchInfo, SoloCollective, WorkerContext
from rl_core.single_controller.base.decorator import (
    Execute,
    make_mini_batch_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)
from rl_core.single_controller.base.device import DeviceMapping, physical_device
from rl_core.single_controller.base.dispatch import Dispatch
from rl_core.single_controller.base.fused import ClassWithInitArgs, FusedWorker, create_colocated_worker_cls
from rl_core.single_controller.base.future import CollectedFuture, WorkerFuture
from rl_core.single_controller.base.mode import DispatchMode
from rl_core.single_controller.base.progress import Progress, current_progress, progress
from rl_core.single_controller.base.resource_pool import ResourcePool, ResourcePoolManager
from rl_core.single_controller.base.worker import Worker
from rl_core.single_controller.base.worker_group import WorkerGroup

__all__ = [
    "Call",
    "CallScope",
    "ClassWithInitArgs",
    "CollectedFuture",
    "Collective",
    "DeviceMapping",
    "Dispatch",
    "DispatchInfo",
    "DispatchMode",
    "Execute",
    "FusedWorker",
    "Progress",
    "ResourcePool",
    "ResourcePoolManager",
    "SoloCollective",
    "Worker",
    "WorkerContext",
    "WorkerFuture",
    "WorkerGroup",
    "create_colocated_worker_cls",
    "current_progress",
    "make_mini_batch_dispatch_fn",
    "make_nd_compute_dataproto_dispatch_fn",
    "physical_device",
    "progress",
    "register",
]
