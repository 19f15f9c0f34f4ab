"""Which runtime a configuration gets, and what that runtime cannot do. Pure functions; `rl check` and the run share them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rl_core.config.offline import OfflineConfig
from rl_core.config.roles import engine_names, pools

if TYPE_CHECKING:
    from rl_core.config.layout import RunTree
    from rl_core.plugins import Registry


def runtime_name(tree: RunTree, *, has_cuda: bool) -> str:
    """``local`` or ``ray``; ``auto`` is local for one worker on the CPU that joins no cluster."""
    trainer = tree.trainer
    if trainer.runtime != "auto":
        return trainer.runtime
    if cluster_address(tree) is not None:
        return "ray"
    on_cpu = trainer.device == "cpu" or (trainer.device == "auto" and not has_cuda)
    return "local" if on_cpu and sum(pool.num_workers for pool in pools(tree)) == 1 else "ray"


def cluster_address(tree: RunTree) -> str | None:
    """The Ray cluster that the run joins; None when it starts its own."""
    address = tree.ray_kwargs.ray_init.address or os.environ.get("RAY_ADDRESS")
    return None if address in (None, "", "local") else address


def missing_runtime(tree: RunTree, *, has_cuda: bool) -> str | None:
    """Why the run cannot be placed in this version; None when it can."""
    own = pools(tree)[1:]
    if runtime_name(tree, has_cuda=has_cuda) == "ray":
        apart = [pool for pool in own if "rollout" in pool.roles]
        if not apart:
            return None
        return (
            f"actor_rollout_ref.rollout.nnodes gives generation {apart[0].num_workers} workers of its own, but weights cannot "
            "be sent from one pool to another in this version. Leave rollout.nnodes out: training and generation take turns "
            "on the same devices."
        )
    if own:
        return (
            f"{', '.join(f'{role} ({pool.num_workers} workers)' for pool in own for role in pool.roles)} asked for workers of "
            "their own, but the local runtime puts all roles on the same ones. Set trainer.runtime=ray, or leave out "
            "enable_resource_pool and rollout.nnodes."
        )
    return None


def cannot_share_a_process(tree: RunTree, registry: Registry) -> Iterator[str]:
    """Every engine of the run that cannot live in one process with its peers, as ``backend 'name'``; each once."""
    for kind, name in dict.fromkeys(engine_names(tree).values()):
        if "shared_process" not in registry.record(kind, name).capabilities:
            yield f"{kind} {name!r}"


def collective_deadline_s(tree: RunTree) -> float:
    """Seconds that a worker waits for its peers in one collective operation."""
    return 600.0 if isinstance(tree, OfflineConfig) else tree.actor_rollout_ref.nccl_timeout
