"""Which workers a run has, and on which pool of devices each of them lives."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from rl_core.config.roles import pools
from rl_core.plugins import get_registry
from rl_core.single_controller.base import ResourcePoolManager
from rl_core.single_controller.base.fused import ClassWithInitArgs
from rl_core.workers.actor_rollout_ref import ActorRolloutRefWorker
from rl_core.workers.critic import CriticWorker
from rl_core.workers.reference import ReferenceWorker
from rl_core.workers.roles import Role

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig, RunTree
    from rl_core.runtime.choose import Runtime
    from rl_core.single_controller.base import Worker

_ROLE_OF: Final = {
    "actor": Role.ActorRolloutRef,
    "ref": Role.RefPolicy,
    "critic": Role.Critic,
    "reward_model": Role.RewardModel,
}
"""Part of the algorithm -> the worker that plays it. The rollout, and a reference without devices of its own, are played
by the actor's worker."""


def resource_pools(tree: RunTree) -> ResourcePoolManager:
    """The pools of a run: one that roles share, and one for each role that is given devices of its own."""
    found = pools(tree)
    mapping: dict[Enum, str] = {_ROLE_OF[role]: pool.name for pool in found for role in pool.roles if role in _ROLE_OF}
    return ResourcePoolManager({pool.name: pool.nodes for pool in found}, mapping)


def start_workers(
    runtime: Runtime, config: PPOTrainerConfig, roles: Collection[Role], *, total_training_steps: int | None
) -> dict[Role, Any]:
    """Start the worker groups of ``roles`` and load their models, one after the other.

    Args:
        runtime: where they live.
        config: of the run.
        roles: the actor's, and which of reference, critic and reward model the run has.
        total_training_steps: trainer steps of the run, for learning-rate schedules.

    Returns:
        Role -> its worker group. A reference that the actor's worker plays is the actor's group.
    """
    manager = resource_pools(config)
    actor_pool = manager.mapping[Role.ActorRolloutRef]
    plays_reference = Role.RefPolicy in roles and manager.mapping[Role.RefPolicy] == actor_pool
    classes = {
        Role.ActorRolloutRef: ClassWithInitArgs(
            ActorRolloutRefWorker, config, with_reference=plays_reference, total_training_steps=total_training_steps
        ),
        Role.RefPolicy: ClassWithInitArgs(ReferenceWorker, config),
        Role.Critic: ClassWithInitArgs(CriticWorker, config, total_training_steps=total_training_steps),
    }
    if Role.RewardModel in roles:
        scorer = cast("type[Worker]", get_registry().load("reward_model", config.reward_model.type))
        classes[Role.RewardModel] = ClassWithInitArgs(scorer, config, total_training_steps=total_training_steps)
    if plays_reference:
        del classes[Role.RefPolicy]
    groups: dict[Any, Any] = dict(
        runtime.worker_groups(manager, {role: make for role, make in classes.items() if role in roles})
    )
    for group in groups.values():
        group.init_model()
    if plays_reference:
        groups[Role.RefPolicy] = groups[Role.ActorRolloutRef]
    return groups
