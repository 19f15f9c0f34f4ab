"""What the chosen backend and rollout can do, compared with what the configuration asks of them.

Capabilities are words in a plugin's record. Core gives a meaning to these:

    lora                  trains (backend) or serves (rollout) low-rank adapters
    sequence_parallel     several workers share one sequence
    tensor_parallel       one replica spans workers by slices of its weights
    pipeline_parallel     one replica spans workers by layers
    expert_parallel       one replica spans workers by experts
    data_parallel         one replica holds data-parallel workers
    sleep                 gives its memory back between generation phases
    cpu                   runs without a GPU
    shared_process        several workers may live in one process, as the local runtime has them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from rl_core.config.runtime_choice import cannot_share_a_process
from rl_core.errors import PluginError
from rl_core.plugins import Record, Registry, kind_label

if TYPE_CHECKING:
    from rl_core.config.compose import Config
    from rl_core.config.layout import RunTree

Side = Literal["backend", "rollout"]

_RECORD_KEYS: Final[dict[str, str]] = {
    "backend": "actor_rollout_ref.actor.strategy",
    "rollout": "actor_rollout_ref.rollout.name",
}


@dataclass(frozen=True)
class Need:
    """A key that asks for a capability."""

    side: Side
    capability: str
    key: str
    value: Callable[[Any], object]
    """What is asked for; None when nothing is."""


def above(number: float | None, limit: float) -> float | None:
    """``number`` if it exceeds ``limit``."""
    return number if number is not None and number > limit else None


NEEDS: Final[tuple[Need, ...]] = (
    Need(
        "backend",
        "lora",
        "actor_rollout_ref.model.lora_rank",
        lambda tree: above(tree.actor_rollout_ref.model.lora_rank, 0),
    ),
    Need(
        "backend",
        "sequence_parallel",
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
        lambda tree: above(tree.actor_rollout_ref.actor.ulysses_sequence_parallel_size, 1),
    ),
    Need(
        "rollout",
        "tensor_parallel",
        "actor_rollout_ref.rollout.tensor_model_parallel_size",
        lambda tree: above(tree.actor_rollout_ref.rollout.tensor_model_parallel_size, 1),
    ),
    Need(
        "rollout",
        "pipeline_parallel",
        "actor_rollout_ref.rollout.pipeline_model_parallel_size",
        lambda tree: above(tree.actor_rollout_ref.rollout.pipeline_model_parallel_size, 1),
    ),
    Need(
        "rollout",
        "expert_parallel",
        "actor_rollout_ref.rollout.expert_parallel_size",
        lambda tree: above(tree.actor_rollout_ref.rollout.expert_parallel_size, 1),
    ),
    Need(
        "rollout",
        "data_parallel",
        "actor_rollout_ref.rollout.data_parallel_size",
        lambda tree: above(tree.actor_rollout_ref.rollout.data_parallel_size, 1),
    ),
    Need("backend", "cpu", "trainer.device", lambda tree: "cpu" if tree.trainer.device == "cpu" else None),
    Need("rollout", "cpu", "trainer.device", lambda tree: "cpu" if tree.trainer.device == "cpu" else None),
)


def engine_records(config: Config) -> dict[str, Record]:
    """The chosen backend and rollout, as far as they were found."""
    return {side: config.records[key] for side, key in _RECORD_KEYS.items() if key in config.records}


def capability_errors(config: Config, world_size: int, registry: Registry) -> Iterator[str]:
    """One message for each thing asked for that a chosen engine cannot do."""
    yield from unmet_needs(NEEDS, engine_records(config), config.tree, registry)
    yield from local_runtime_errors(config.tree, world_size, registry)
    yield from _replicas(config, world_size)


def unmet_needs(
    needs: Iterable[Need], engines: Mapping[str, Record], tree: RunTree, registry: Registry
) -> Iterator[str]:
    """One message for each of ``needs`` that the engine it speaks about does not have."""
    for need in needs:
        record, value = engines.get(need.side), need.value(tree)
        if record is not None and value is not None and need.capability not in record.capabilities:
            yield (
                f"{need.key} is {value}, which needs {need.capability!r}; {_label(record)} does not have it "
                f"(it has: {_listed(record)}).{_others(need, registry)}"
            )


def capability_notes(config: Config) -> Iterator[str]:
    """Things the engines do in another way than asked, without harm to the result."""
    rollout = engine_records(config).get("rollout")
    if rollout is None:
        return
    tree = config.tree
    if tree.actor_rollout_ref.rollout.free_cache_engine and "sleep" not in rollout.capabilities:
        yield (
            f"{_label(rollout)} cannot give its memory back between generation phases, so "
            "actor_rollout_ref.rollout.free_cache_engine has no effect."
        )
    lora = tree.actor_rollout_ref.model
    if lora.lora_rank > 0 and not lora.lora.merge and "lora" not in rollout.capabilities:
        yield f"{_label(rollout)} does not serve adapters: merged weights are sent at each synchronisation."


def pairing_note(config: Config, registry: Registry) -> tuple[str | None, str | None]:
    """The resharding chosen and why, and an error when none joins the engines."""
    engines = engine_records(config)
    if len(engines) < 2:
        return None, None
    backend, rollout = engines["backend"].name, engines["rollout"].name
    try:
        pairing = registry.pairing(backend, rollout)
    except PluginError as error:
        return None, str(error)
    return f"weights go from {backend!r} to {rollout!r} by resharding {pairing.record.name!r}: {pairing.reason}.", None


def local_runtime_errors(tree: RunTree, world_size: int, registry: Registry) -> Iterator[str]:
    """One message for each engine that shall share this process with its peers and cannot."""
    if tree.trainer.runtime != "local" or world_size == 1:
        return
    for engine in cannot_share_a_process(tree, registry):
        yield (
            f"trainer.runtime is local with {world_size} workers, which live in one process; {engine} "
            "needs a process for each worker. Use one worker."
        )


def _replicas(config: Config, world_size: int) -> Iterator[str]:
    rollout = config.tree.actor_rollout_ref.rollout
    sizes = {
        "tensor_model_parallel_size": rollout.tensor_model_parallel_size,
        "pipeline_model_parallel_size": rollout.pipeline_model_parallel_size,
        "data_parallel_size": rollout.data_parallel_size,
    }
    span = 1
    for size in sizes.values():
        span *= size
    workers = world_size
    if rollout.nnodes > 0:
        workers = rollout.nnodes * (rollout.n_gpus_per_node or 1)
    if workers % span:
        product = " x ".join(f"{name} ({size})" for name, size in sizes.items() if size > 1)
        yield (
            f"actor_rollout_ref.rollout: {product} = {span} workers per replica, but the {workers} workers cannot be "
            f"cut into such replicas. Choose sizes whose product divides {workers}."
        )


def _label(record: Record) -> str:
    return f"{kind_label(record.kind)} {record.name!r}"


def _listed(record: Record) -> str:
    return ", ".join(sorted(record.capabilities)) or "nothing listed"


def _others(need: Need, registry: Registry) -> str:
    able = [record.name for record in registry.records(need.side) if need.capability in record.capabilities]
    return f" Installed ones that have it: {', '.join(able)}." if able else ""
