"""Which runtime a configuration gets, and what that runtime cannot do. Pure functions; `rl check` and the run share them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rl_core.config.roles import pools, roles

if TYPE_CHECKING:
    from rl_core.config.root import PPOTrainerConfig
    from rl_core.plugins import Registry


def runtime_name(tree: PPOTrainerConfig, *, has_cuda: bool) -> str:
    """``local`` or ``ray``; ``auto`` is local for one worker on the CPU only."""
    trainer = tree.trainer
    if trainer.runtime != "auto":
        return trainer.runtime
    on_cpu = trainer.device == "cpu" or (trainer.device == "auto" and not has_cuda)
    return "local" if on_cpu and trainer.nnodes * trainer.n_gpus_per_node == 1 else "ray"


def missing_runtime(tree: PPOTrainerConfig, *, has_cuda: bool) -> str | None:
    """Why the run cannot be placed in this version; None when it can."""
    if runtime_name(tree, has_cuda=has_cuda) == "ray":
        workers = tree.trainer.nnodes * tree.trainer.n_gpus_per_node
        return (
            f"trainer.runtime={tree.trainer.runtime} with {workers} worker{'s' if workers > 1 else ''} needs the Ray "
            "runtime, which this version does not have yet. Use trainer.runtime=local: one worker for any engine, several "
            "for engines that can share a process."
        )
    own = pools(tree)[1:]
    if own:
        return (
            f"{', '.join(f'{role} ({pool.num_workers} workers)' for pool in own for role in pool.roles)} asked for workers of "
            "their own, but the local runtime puts all roles on the same ones. Leave out enable_resource_pool and "
            "rollout.nnodes."
        )
    return None


def cannot_share_a_process(tree: PPOTrainerConfig, registry: Registry) -> Iterator[str]:
    """Every engine of the run that cannot live in one process with its peers, as ``backend 'name'``; each once."""
    actor_rollout_ref = tree.actor_rollout_ref
    actor = actor_rollout_ref.actor.strategy
    names = {
        "actor": ("backend", actor),
        "rollout": ("rollout", actor_rollout_ref.rollout.name),
        "ref": ("backend", actor_rollout_ref.ref.strategy or actor),
        "critic": ("backend", tree.critic.strategy or actor),
        "reward_model": ("backend", tree.reward_model.strategy or actor),
    }
    for kind, name in dict.fromkeys(names[role] for role in roles(tree)):
        if "shared_process" not in registry.record(kind, name).capabilities:
            yield f"{kind} {name!r}"
