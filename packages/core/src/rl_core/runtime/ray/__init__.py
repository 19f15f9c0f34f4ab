"""Worker groups as Ray actors, from one laptop to many nodes. Importing this loads no Ray: starting a runtime does."""

from rl_core.runtime.ray.group import RayClassWithInitArgs, RayWorkerGroup
from rl_core.runtime.ray.link import RunLink
from rl_core.runtime.ray.pool import RayResourcePool, merge_resource_pool, split_resource_pool
from rl_core.runtime.ray.runtime import RayRuntime
from rl_core.single_controller.base.fused import create_colocated_worker_cls

__all__ = [
    "RayClassWithInitArgs",
    "RayResourcePool",
    "RayRuntime",
    "RayWorkerGroup",
    "RunLink",
    "create_colocated_worker_cls",
    "merge_resource_pool",
    "split_resource_pool",
]
