"""What each phase of a run will hold on a device: engines are asked, the phase table says what is there at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rl_core.config.memory_question import FORWARD, GENERATE, UPDATE, MemoryEstimate, RolloutMemoryQuestion
from rl_core.config.memory_roles import AskedPart, asked_parts, worker_counts
from rl_core.config.offline import OfflineConfig
from rl_core.config.phase_table import NEEDS, Part, Phase, State, evictable_states
from rl_core.config.roles import Pool, pools

if TYPE_CHECKING:
    from rl_core.config.layout import RunTree
    from rl_core.config.root import PPOTrainerConfig
    from rl_core.plugins import Registry

GIB: Final = 2**30
PROCESS_BYTES: Final = 3 * 2**28
"""CUDA context, kernels, and workspaces of matrix and communication libraries of one process: a usual figure, not measured."""

WORKS: Final[Mapping[Phase, tuple[Part, str]]] = {
    Phase.GENERATE: (Part.ROLLOUT, GENERATE),
    Phase.LOG_PROB: (Part.ACTOR, FORWARD),
    Phase.REF_LOG_PROB: (Part.REF, FORWARD),
    Phase.VALUES: (Part.CRITIC, FORWARD),
    Phase.REWARD_MODEL: (Part.REWARD_MODEL, FORWARD),
    Phase.REWARD_REFERENCE: (Part.REWARD_REFERENCE, FORWARD),
    Phase.UPDATE_REWARD_MODEL: (Part.REWARD_MODEL, UPDATE),
    Phase.UPDATE_CRITIC: (Part.CRITIC, UPDATE),
    Phase.UPDATE_ACTOR: (Part.ACTOR, UPDATE),
    Phase.UPDATE_SFT: (Part.ACTOR, UPDATE),
    Phase.COMPUTE_LOSS: (Part.ACTOR, FORWARD),
}
"""Phase -> the part that works in it, and what it does."""

_OF_A_FILE: Final = (Phase.UPDATE_SFT, Phase.COMPUTE_LOSS)
_PROCESS_OF: Final[Mapping[Part, str]] = {
    Part.ACTOR: "actor",
    Part.REF: "actor",
    Part.ROLLOUT: "actor",
    Part.CRITIC: "critic",
    Part.REWARD_MODEL: "reward_model",
    Part.REWARD_REFERENCE: "reward_model",
}


@dataclass(frozen=True)
class PhaseMemory:
    """One phase on one device.

    Attributes:
        phase: which.
        states: what is resident -> bytes.
        work: bytes beside it at the peak.
        processes: bytes of the processes themselves.
    """

    phase: Phase
    states: Mapping[State, int]
    work: int
    processes: int

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        return sum(self.states.values()) + self.work + self.processes


@dataclass(frozen=True)
class PoolMemory:
    """The phases of one pool's devices.

    Attributes:
        pool: which.
        phases: those in which anything of the pool works, in the order of a step.
        rollout: what the generator answered; None without one here.
    """

    pool: Pool
    phases: tuple[PhaseMemory, ...]
    rollout: MemoryEstimate | None = None

    @property
    def peak(self) -> PhaseMemory:
        """The phase that needs most."""
        return max(self.phases, key=lambda phase: phase.total)


@dataclass
class MemoryPlan:
    """All pools, and the engines that predict nothing (label -> why)."""

    pools: list[PoolMemory] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)


def memory_plan(tree: RunTree, registry: Registry, device_bytes: int | None) -> MemoryPlan:
    """Ask every engine of the run.

    Args:
        tree: composed configuration.
        registry: its engines.
        device_bytes: memory of a device; None where it is not known.

    Raises:
        ConfigError: an engine cannot tell; says why.
        PluginError: an engine's function does not load.
    """
    plan = MemoryPlan()
    asked = asked_parts(tree, worker_counts(tree), registry)
    found: dict[Part, MemoryEstimate] = {}
    for part, one in asked.items():
        predict = registry.load_memory("backend", one.backend)
        if predict is None:
            plan.unknown[f"backend {one.backend!r}"] = "it predicts no memory"
        else:
            found[part] = predict(one.question)
    for pool in pools(tree):
        here = {part: found[part] for part in _parts(pool) if part in found}
        if plan.unknown or not (here or "rollout" in pool.roles):
            continue
        pooled = _pool_memory(tree, registry, pool, here, asked, device_bytes, plan)
        if pooled.phases:
            plan.pools.append(pooled)
    return plan


def _pool_memory(
    tree: RunTree,
    registry: Registry,
    pool: Pool,
    here: dict[Part, MemoryEstimate],
    asked: Mapping[Part, AskedPart],
    device_bytes: int | None,
    plan: MemoryPlan,
) -> PoolMemory:
    evictable = {state for part in here for state in evictable_states(part, asked[part].question.plugin)}
    processes = PROCESS_BYTES * len({_PROCESS_OF[part] for part in [*here, *_generators(pool)]})
    if isinstance(tree, OfflineConfig):
        rows = [_row(phase, here, evictable, processes) for phase in _OF_A_FILE]
        return PoolMemory(pool, tuple(rows))
    rollout = None
    if _generators(pool):
        name = tree.actor_rollout_ref.rollout.name
        predict = registry.load_memory("rollout", name)
        if predict is None:
            plan.unknown[f"rollout {name!r}"] = "it predicts no memory"
        else:
            beside = sum(_resident(Phase.GENERATE, here, evictable).values()) + processes
            rollout = predict(_rollout_question(tree, device_bytes, beside))
            here = {**here, Part.ROLLOUT: rollout}
            if tree.actor_rollout_ref.rollout.free_cache_engine and _sleeps(registry, name):
                evictable |= {(Part.ROLLOUT, "weights"), (Part.ROLLOUT, "kv_cache")}
    learns_reward = Part.REWARD_MODEL in here and asked[Part.REWARD_MODEL].question.optim is not None
    phases = _step_phases(here, learns_reward=learns_reward)
    rows = [_row(phase, here, evictable, processes, _sync_bytes(tree, rollout)) for phase in phases]
    return PoolMemory(pool, tuple(rows), rollout)


def _row(
    phase: Phase, here: Mapping[Part, MemoryEstimate], evictable: Collection[State], processes: int, sync: int = 0
) -> PhaseMemory:
    if phase is Phase.SYNC_WEIGHTS:
        work = sync
    else:
        part, doing = WORKS[phase]
        work = here[part].work.get(doing, 0)
    return PhaseMemory(phase, _resident(phase, here, evictable), work, processes)


def _resident(phase: Phase, here: Mapping[Part, MemoryEstimate], evictable: Collection[State]) -> dict[State, int]:
    """What a phase needs, and what may not leave; gradients are given up after an optimizer step."""
    needed = NEEDS[phase]
    return {
        (part, state): size
        for part, estimate in here.items()
        for state, size in estimate.states.items()
        if size and ((part, state) in needed or (state != "gradients" and (part, state) not in evictable))
    }


def _step_phases(here: Collection[Part], *, learns_reward: bool) -> Iterator[Phase]:
    """Phases in which one of the parts works."""
    if Part.ROLLOUT in here:
        yield Phase.SYNC_WEIGHTS
    for phase, (part, _) in WORKS.items():
        if part in here and phase not in _OF_A_FILE and (phase is not Phase.UPDATE_REWARD_MODEL or learns_reward):
            yield phase


def _parts(pool: Pool) -> Iterator[Part]:
    for part in Part:
        role = "reward_model" if part is Part.REWARD_REFERENCE else part.value
        if role in pool.roles and part is not Part.ROLLOUT:
            yield part


def _generators(pool: Pool) -> list[Part]:
    return [Part.ROLLOUT] if "rollout" in pool.roles else []


def _sleeps(registry: Registry, name: str) -> bool:
    return "sleep" in registry.record("rollout", name).capabilities


def _rollout_question(tree: PPOTrainerConfig, device_bytes: int | None, beside: int) -> RolloutMemoryQuestion:
    return RolloutMemoryQuestion(
        model=tree.actor_rollout_ref.model,
        rollout=tree.actor_rollout_ref.rollout,
        device_bytes=device_bytes,
        beside_bytes=beside,
        is_gpu=tree.trainer.device != "cpu",
    )


def _sync_bytes(tree: PPOTrainerConfig, rollout: MemoryEstimate | None) -> int:
    """A bucket of weights on its way."""
    if rollout is None:
        return 0
    bucket = tree.actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes * 2**20
    return min(bucket, rollout.states.get("weights", bucket))
