"""Explain a configuration before anything is allocated: what it will do, what is wrong, what has no effect.

Pure functions of the composed configuration and the plugin records. The trainer prints the same report at its start
that ``rl check`` prints alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rl_core.config.batch_math import BatchArithmetic, UpdateArithmetic, batch_errors, batch_plan
from rl_core.config.capabilities import capability_errors, capability_notes, engine_records, pairing_note
from rl_core.config.compose import Composed, Config
from rl_core.config.contradictions import contradictions
from rl_core.config.inert import inert_lines
from rl_core.config.inert_choice import inert_choices
from rl_core.config.memory_check import check_memory
from rl_core.config.offline_check import check_offline
from rl_core.config.report import BATCH, ENGINES, INERT, MEMORY, POOLS, SPELLING, STEPS, TOPICS, Finding, Report
from rl_core.config.role_needs import role_errors
from rl_core.config.roles import SHARED, idle_phases, pools, side_by_side
from rl_core.config.step_report import check_placement, check_steps
from rl_core.errors import PluginError

if TYPE_CHECKING:
    from rl_core.plugins import Registry

__all__ = [
    "BATCH",
    "ENGINES",
    "INERT",
    "MEMORY",
    "POOLS",
    "SPELLING",
    "STEPS",
    "TOPICS",
    "Finding",
    "Report",
    "check_config",
]


def check_config(
    config: Composed,
    world_size: int | None,
    registry: Registry,
    dataset_size: int | None = None,
) -> Report:
    """Judge and explain a composed configuration.

    Args:
        config: from ``compose`` or ``compose_leniently``.
        world_size: workers of the shared pool; None takes ``trainer.nnodes`` times ``trainer.n_gpus_per_node``.
        registry: plugins, for the pairing and for names to suggest.
        dataset_size: training rows, when known.

    Returns:
        Errors, warnings and notes; nothing is raised and nothing is allocated.
    """
    workers = world_size or config.tree.trainer.nnodes * config.tree.trainer.n_gpus_per_node
    classes = _plugin_classes(config, registry)
    if isinstance(config, Config):
        return _check_ppo(config, workers, registry, dataset_size, classes)
    return check_offline(config, workers, registry, dataset_size, classes)


def _check_ppo(
    config: Config, workers: int, registry: Registry, dataset_size: int | None, classes: Mapping[str, type]
) -> Report:
    report = Report()
    report.notes += [Finding(SPELLING, line) for line in config.notices]
    _check_batches(config, workers, report)
    check_steps(config.tree, dataset_size, report)
    _check_engines(config, workers, registry, report)
    for severity, text in contradictions(config):
        (report.errors if severity == "error" else report.warnings).append(Finding("contradictions", text))
    report.notes += [Finding(POOLS, line) for line in pool_lines(config)]
    check_memory(config.tree, registry, report)
    report.notes += [Finding(INERT, line) for line in inert_lines(config.given)]
    report.notes += [Finding(INERT, line) for line in inert_choices(config, classes)]
    return report


def _check_batches(config: Config, workers: int, report: Report) -> None:
    errors = batch_errors(config.tree, workers)
    report.errors += [Finding(BATCH, text) for text in errors]
    if not errors:
        plan = batch_plan(config.tree, workers)
        report.notes += [Finding(BATCH, line) for line in batch_lines(plan)]
        report.warnings += [Finding(BATCH, line) for line in uneven_lines(plan)]


def _check_engines(config: Config, workers: int, registry: Registry, report: Report) -> None:
    note, error = pairing_note(config, registry)
    for record in engine_records(config).values():
        listed = ", ".join(sorted(record.capabilities)) or "none listed"
        report.notes.append(Finding(ENGINES, f"{record.kind} {record.name!r}, capabilities: {listed}."))
    if note is not None:
        report.notes.append(Finding(ENGINES, note))
    if error is not None:
        report.errors.append(Finding(ENGINES, error))
    report.errors += [Finding(ENGINES, text) for text in capability_errors(config, workers, registry)]
    report.errors += [Finding(ENGINES, text) for text in role_errors(config, registry)]
    report.notes += [Finding(ENGINES, text) for text in capability_notes(config)]
    check_placement(config.tree, report)


def batch_lines(plan: BatchArithmetic) -> list[str]:
    """The three batch sizes in words and numbers."""
    lines = [
        f"data.train_batch_size: {plan.prompts:,} prompts per step, x rollout.n ({plan.n}) = {plan.responses:,} "
        "responses.",
    ]
    if plan.generation is not None:
        lines.append(
            f"data.gen_batch_size: {plan.generation:,} prompts per generation, x rollout.n ({plan.n}) = "
            f"{plan.generation * plan.n:,} responses; a step makes generations until {plan.prompts:,} prompts have rewards "
            "that differ."
        )
    lines += _update_lines(plan.actor)
    if plan.critic is not None:
        lines += _update_lines(plan.critic)
    return lines


def _update_lines(sizes: UpdateArithmetic) -> Iterator[str]:
    yield (
        f"{sizes.role}: ppo_mini_batch_size: {sizes.mini_batch_prompts:,} prompts per optimizer step = "
        f"{sizes.mini_batch_responses:,} responses; {_count(sizes.mini_batches, 'mini-batch', 'es')} x "
        f"{_count(sizes.epochs, 'epoch')} = {_count(sizes.optimizer_steps, 'optimizer step')} per step."
    )
    most = "" if sizes.is_even else "up to "
    share = f"{most}{_count(sizes.responses_per_worker, 'response')} per worker ({sizes.dp_size} data-parallel)"
    if sizes.micro_batch is None:
        yield f"{sizes.role}: {share}, packed into passes of at most {sizes.max_tokens:,} tokens."
    else:
        yield (
            f"{sizes.role}: {share}; ppo_micro_batch_size_per_gpu: {_count(sizes.micro_batch, 'response')} per pass = "
            f"{_count(sizes.micro_batches or 0, 'accumulation step')}. This size changes memory and speed only."
        )


def uneven_lines(plan: BatchArithmetic) -> list[str]:
    """Mini-batches that do not divide among the workers; the numbers stay right, some workers wait."""
    roles = [sizes for sizes in (plan.actor, plan.critic) if sizes is not None and not sizes.is_even]
    return [
        f"{sizes.role}: {sizes.mini_batch_responses} responses of a mini-batch over {sizes.dp_size} workers do not "
        f"divide: {sizes.mini_batch_responses % sizes.dp_size} of them get one more, the others wait."
        for sizes in roles
    ]


def pool_lines(config: Config) -> list[str]:
    """Which workers a step keeps busy, and which wait when."""
    tree = config.tree
    everything = pools(tree)
    if len(everything) == 1:
        (pool,) = everything
        return [
            f"{_count(pool.num_workers, 'worker')} shared by {', '.join(pool.roles)}: every phase uses all of them; "
            "they wait only for the slowest response, and for rewards that end after it."
        ]
    mode = tree.trainer.v1.trainer_mode
    lines = []
    for pool, waits in idle_phases(tree):
        name = "shared pool" if pool.name == SHARED else pool.name
        who = f"{name}, {_count(pool.num_workers, 'worker')} ({', '.join(pool.roles)})"
        if mode == "sync":
            lines.append(f"{who}: waits during {', '.join(waits) or 'no phase'}.")
        else:
            lines.append(f"{who}: waits only when the batches in flight run out ({mode}).")
    if together := side_by_side(tree):
        lines.append(f"{', '.join(together)}: begin together; pools that are done wait for the slowest.")
    return lines


def _plugin_classes(config: Composed, registry: Registry) -> dict[str, type]:
    """Key that names a plugin -> the plugin's configuration dataclass, where it has one."""
    found: dict[str, type] = {}
    for key, record in config.records.items():
        if record.config is None:
            continue
        try:
            cls = registry.load_config(record.kind, record.name)
        except PluginError:
            # Composition has reported it; here it only means that nothing is known about the keys it reads.
            continue
        if cls is not None:
            found[key] = cls
    return found


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{plural}"
