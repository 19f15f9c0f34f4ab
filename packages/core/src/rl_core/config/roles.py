"""Which roles a configuration needs, on which pools they live, and which pool idles when. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rl_core.config.critic import CriticConfig
    from rl_core.config.ref import RefConfig
    from rl_core.config.reward import RewardModelConfig
    from rl_core.config.root import PPOTrainerConfig

SHARED: Final = "global_pool"

_PHASES: Final = (
    ("generation", "rollout"),
    ("old log-probs", "actor"),
    ("reference log-probs", "ref"),
    ("values", "critic"),
    ("reward model", "reward_model"),
    ("critic update", "critic"),
    ("actor update", "actor"),
)
"""Phases of a step, in order, and the role that works in each."""


@dataclass(frozen=True)
class Pool:
    """Workers that roles share."""

    name: str
    roles: tuple[str, ...]
    num_workers: int


def needs_reference(tree: PPOTrainerConfig) -> bool:
    """Whether log-probs of a reference policy are used anywhere."""
    return tree.algorithm.use_kl_in_reward or tree.actor_rollout_ref.actor.use_kl_loss


def needs_critic(tree: PPOTrainerConfig) -> bool:
    """Whether there is a value function."""
    return bool(tree.critic.enable)


def roles(tree: PPOTrainerConfig) -> tuple[str, ...]:
    """Every role of the run, in the order of the phases."""
    wanted = ["actor", "rollout"]
    if needs_reference(tree):
        wanted.append("ref")
    if needs_critic(tree):
        wanted.append("critic")
    if tree.reward_model.enable:
        wanted.append("reward_model")
    return tuple(wanted)


def pools(tree: PPOTrainerConfig) -> tuple[Pool, ...]:
    """The pools of a run: one for all roles, and one for each role that is given its own."""
    shared, own = [], []
    for role in roles(tree):
        size = _own_workers(tree, role)
        if size is None:
            shared.append(role)
        else:
            own.append(Pool(f"{role}_pool", (role,), size))
    return (Pool(SHARED, tuple(shared), tree.trainer.nnodes * tree.trainer.n_gpus_per_node), *own)


def _own_workers(tree: PPOTrainerConfig, role: str) -> int | None:
    rollout = tree.actor_rollout_ref.rollout
    if role == "rollout":
        if rollout.nnodes == 0:
            return None
        return rollout.nnodes * (rollout.n_gpus_per_node or tree.trainer.n_gpus_per_node)
    if role == "actor":
        return None
    sections: dict[str, RefConfig | CriticConfig | RewardModelConfig] = {
        "ref": tree.actor_rollout_ref.ref,
        "critic": tree.critic,
        "reward_model": tree.reward_model,
    }
    section = sections[role]
    return section.nnodes * section.n_gpus_per_node if section.enable_resource_pool else None


def idle_phases(tree: PPOTrainerConfig) -> Iterator[tuple[Pool, tuple[str, ...]]]:
    """For each pool the phases of a synchronous step in which none of its workers has anything to do.

    Reference log-probs, values and the reward model run side by side when they live on different pools, so a pool
    waits in such a phase only for the others to end.
    """
    present = set(roles(tree))
    for pool in pools(tree):
        waits = tuple(phase for phase, role in _PHASES if role in present and role not in pool.roles)
        yield pool, waits


def pool_errors(tree: PPOTrainerConfig) -> list[str]:
    """One message for each pool of its own that has no workers."""
    return [
        f"the {pool.roles[0]} is given a pool of its own with {pool.num_workers} workers. Set nnodes and "
        "n_gpus_per_node of that section."
        for pool in pools(tree)
        if pool.num_workers < 1 and pool.roles
    ]
