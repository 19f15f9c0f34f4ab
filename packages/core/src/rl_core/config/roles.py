"""Which roles a configuration needs, on which pools they live, and which pool idles when. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from rl_core.config.offline import OfflineConfig

if TYPE_CHECKING:
    from rl_core.config.critic import CriticConfig
    from rl_core.config.layout import RunTree
    from rl_core.config.ref import RefConfig
    from rl_core.config.reward import RewardModelConfig
    from rl_core.config.root import PPOTrainerConfig
    from rl_core.plugins import Registry, RewardModelRecord

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

SIDE_BY_SIDE: Final = ("old log-probs", "reference log-probs", "values", "reward model")
"""Phases that begin together; roles that share workers take turns in them."""


@dataclass(frozen=True)
class Pool:
    """Workers that roles share."""

    name: str
    roles: tuple[str, ...]
    nodes: tuple[int, ...]
    """Workers on each node."""

    @property
    def num_workers(self) -> int:
        """Workers on all nodes."""
        return sum(self.nodes)


def needs_reference(tree: PPOTrainerConfig) -> bool:
    """Whether log-probs of a reference policy are used anywhere."""
    return tree.algorithm.use_kl_in_reward or tree.actor_rollout_ref.actor.use_kl_loss


def needs_critic(tree: PPOTrainerConfig) -> bool:
    """Whether there is a value function."""
    return bool(tree.critic.enable)


def reward_model_record(tree: PPOTrainerConfig, registry: Registry) -> RewardModelRecord | None:
    """The kind of scoring model that the run has; None without one."""
    if not tree.reward_model.enable:
        return None
    return cast("RewardModelRecord", registry.record("reward_model", tree.reward_model.type))


def scores_by_model(tree: PPOTrainerConfig, registry: Registry) -> bool:
    """Whether a model's score takes the place of the reward function's."""
    record = reward_model_record(tree, registry)
    return record is not None and record.gives == "outcome"


def trains_reward_model(tree: PPOTrainerConfig, registry: Registry) -> bool:
    """Whether the scoring model learns during the run."""
    record = reward_model_record(tree, registry)
    return record is not None and record.trained and tree.reward_model.update != "none"


def roles(tree: RunTree) -> tuple[str, ...]:
    """Every role of the run, in the order of the phases."""
    if isinstance(tree, OfflineConfig):
        return ("actor",)
    wanted = ["actor", "rollout"]
    if needs_reference(tree):
        wanted.append("ref")
    if needs_critic(tree):
        wanted.append("critic")
    if tree.reward_model.enable:
        wanted.append("reward_model")
    return tuple(wanted)


def engine_names(tree: RunTree) -> dict[str, tuple[str, str]]:
    """Role -> kind (``backend`` or ``rollout``) and name of its engine, for every role of the run."""
    if isinstance(tree, OfflineConfig):
        return {"actor": ("backend", tree.engine.strategy)}
    actor_rollout_ref = tree.actor_rollout_ref
    actor = actor_rollout_ref.actor.strategy
    names = {
        "actor": ("backend", actor),
        "rollout": ("rollout", actor_rollout_ref.rollout.name),
        "ref": ("backend", actor_rollout_ref.ref.strategy or actor),
        "critic": ("backend", tree.critic.strategy or actor),
        "reward_model": ("backend", tree.reward_model.strategy or actor),
    }
    return {role: names[role] for role in roles(tree)}


def pools(tree: RunTree) -> tuple[Pool, ...]:
    """The pools of a run: one for all roles, and one for each role that is given its own."""
    shared, own = [], []
    for role in roles(tree):
        nodes = _own_nodes(tree, role)
        if nodes is None:
            shared.append(role)
        else:
            own.append(Pool(f"{role}_pool", (role,), nodes))
    return (Pool(SHARED, tuple(shared), (tree.trainer.n_gpus_per_node,) * tree.trainer.nnodes), *own)


def _own_nodes(tree: RunTree, role: str) -> tuple[int, ...] | None:
    """Workers on each node of the role's own pool; None when it has none."""
    if role == "actor" or isinstance(tree, OfflineConfig):
        return None
    rollout = tree.actor_rollout_ref.rollout
    if role == "rollout":
        if rollout.nnodes == 0:
            return None
        return (rollout.n_gpus_per_node or tree.trainer.n_gpus_per_node,) * rollout.nnodes
    sections: dict[str, RefConfig | CriticConfig | RewardModelConfig] = {
        "ref": tree.actor_rollout_ref.ref,
        "critic": tree.critic,
        "reward_model": tree.reward_model,
    }
    section = sections[role]
    return (section.n_gpus_per_node,) * section.nnodes if section.enable_resource_pool else None


def idle_phases(tree: PPOTrainerConfig) -> Iterator[tuple[Pool, tuple[str, ...]]]:
    """For each pool the phases of a synchronous step in which none of its workers has anything to do.

    The phases of ``SIDE_BY_SIDE`` begin together, so a pool that works in one of them waits in the others only for the
    slowest to end.
    """
    present = set(roles(tree))
    for pool in pools(tree):
        together = any(phase in SIDE_BY_SIDE and role in pool.roles for phase, role in _PHASES)
        waits = tuple(
            phase
            for phase, role in _PHASES
            if role in present and role not in pool.roles and not (together and phase in SIDE_BY_SIDE)
        )
        yield pool, waits


def side_by_side(tree: PPOTrainerConfig) -> tuple[str, ...]:
    """Phases of ``SIDE_BY_SIDE`` that the run really computes at once, because their roles live on different pools."""
    found = [(pool.name, phase) for pool in pools(tree) for phase, role in _PHASES if role in pool.roles]
    phases = [(name, phase) for name, phase in found if phase in SIDE_BY_SIDE]
    return tuple(phase for _, phase in phases) if len({name for name, _ in phases}) > 1 else ()


def pool_errors(tree: PPOTrainerConfig) -> list[str]:
    """One message for each pool of its own that has no workers."""
    return [
        f"the {pool.roles[0]} is given a pool of its own with {pool.num_workers} workers. Set nnodes and "
        "n_gpus_per_node of that section."
        for pool in pools(tree)
        if pool.num_workers < 1 and pool.roles
    ]
