"""Explain a configuration before anything is allocated: what it will do, what is wrong, what has no effect.

Pure functions of the composed configuration and the plugin records. The trainer prints the same report at its start
that ``rl check`` prints alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rl_core.config.batch_math import BatchArithmetic, UpdateArithmetic, batch_errors, batch_plan
from rl_core.config.capabilities import capability_errors, capability_notes, engine_records, pairing_note
from rl_core.config.contradictions import contradictions
from rl_core.config.inert import inert_lines
from rl_core.config.inert_choice import inert_choices
from rl_core.config.roles import SHARED, idle_phases, pools
from rl_core.config.runtime_choice import missing_runtime
from rl_core.config.schedule import StepSchedule, step_schedule
from rl_core.errors import ConfigError, PluginError

if TYPE_CHECKING:
    from rl_core.config.compose import Config
    from rl_core.plugins import Registry

_MOST_STEPS_LISTED: Final = 8

INERT: Final = "keys without effect"
SPELLING: Final = "other spellings"
BATCH: Final = "batch sizes"
ENGINES: Final = "engines"
STEPS: Final = "steps"
POOLS: Final = "pools"
TOPICS: Final = (BATCH, STEPS, ENGINES, POOLS, SPELLING, INERT)


@dataclass(frozen=True)
class Finding:
    """One thing to tell."""

    topic: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass
class Report:
    """What is to be said about a configuration."""

    errors: list[Finding] = field(default_factory=list)
    """The run cannot start."""

    warnings: list[Finding] = field(default_factory=list)
    """The run is well defined, and probably not what was meant."""

    blockers: list[Finding] = field(default_factory=list)
    """The run is well defined, but this version or this machine cannot place it."""

    notes: list[Finding] = field(default_factory=list)
    """What the run does, and which given keys have no effect."""

    def lines(self, topic: str) -> list[str]:
        """Texts of the notes on one topic."""
        return [note.text for note in self.notes if note.topic == topic]

    def start_lines(self) -> list[str]:
        """What a run prints when it starts: warnings, other spellings, keys without effect; one line each."""
        warnings = [f"warning: {warning.text}" for warning in self.warnings]
        return [*warnings, *(f"note: {line}" for topic in (SPELLING, INERT) for line in self.lines(topic))]

    def raise_if_failed(self) -> None:
        """Refuse the configuration when there is an error.

        Raises:
            ConfigError: with every error.
        """
        if self.errors:
            raise ConfigError("\n".join(error.text for error in self.errors))


def check_config(
    config: Config,
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
    report = Report()
    report.notes += [Finding(SPELLING, line) for line in config.notices]
    _check_batches(config, workers, report)
    _check_steps(config, dataset_size, report)
    _check_engines(config, workers, registry, report)
    for severity, text in contradictions(config):
        (report.errors if severity == "error" else report.warnings).append(Finding("contradictions", text))
    report.notes += [Finding(POOLS, line) for line in pool_lines(config)]
    report.notes += [Finding(INERT, line) for line in inert_lines(config.given)]
    report.notes += [Finding(INERT, line) for line in inert_choices(config, _plugin_classes(config, registry))]
    return report


def _check_batches(config: Config, workers: int, report: Report) -> None:
    errors = batch_errors(config.tree, workers)
    report.errors += [Finding(BATCH, text) for text in errors]
    if not errors:
        plan = batch_plan(config.tree, workers)
        report.notes += [Finding(BATCH, line) for line in batch_lines(plan)]
        report.warnings += [Finding(BATCH, line) for line in uneven_lines(plan)]


def _check_steps(config: Config, dataset_size: int | None, report: Report) -> None:
    if dataset_size is None:
        trainer = config.tree.trainer
        limit = trainer.total_training_steps
        end = f", or {limit} steps if that is less" if limit else ""
        report.notes.append(Finding(STEPS, f"{trainer.total_epochs} epochs{end}; the number of rows is not known yet."))
        return
    try:
        schedule = step_schedule(config.tree, dataset_size)
    except ConfigError as error:
        report.errors.append(Finding(STEPS, str(error)))
        return
    report.notes += [Finding(STEPS, line) for line in step_lines(config, schedule, dataset_size)]


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
    report.notes += [Finding(ENGINES, text) for text in capability_notes(config)]
    # The machine that checks need not be the one that trains, so its own devices prove nothing.
    missing = missing_runtime(config.tree, has_cuda=config.tree.trainer.device == "cuda")
    if missing is not None:
        report.blockers.append(Finding(POOLS, missing))


def batch_lines(plan: BatchArithmetic) -> list[str]:
    """The three batch sizes in words and numbers."""
    lines = [
        f"data.train_batch_size: {plan.prompts:,} prompts per step, x rollout.n ({plan.n}) = {plan.responses:,} "
        "responses.",
        *_update_lines(plan.actor),
    ]
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


def step_lines(config: Config, schedule: StepSchedule, dataset_size: int) -> list[str]:
    """How many steps, and after which of them a checkpoint and a validation follow."""
    tree = config.tree
    rest = dataset_size - schedule.steps_per_epoch * tree.data.train_batch_size
    left = f", {rest} rows left over per epoch" if rest else ""
    lines = [
        f"{dataset_size:,} rows / {tree.data.train_batch_size:,} = {schedule.steps_per_epoch:,} steps per epoch{left}; "
        f"x {tree.trainer.total_epochs} epochs, {schedule.total_steps:,} steps in all."
    ]
    limit = tree.trainer.total_training_steps
    if limit is not None and limit > schedule.total_steps:
        lines.append(f"trainer.total_training_steps is {limit}, but the epochs end after {schedule.total_steps} steps.")
    lines.append(f"checkpoint after step {_listed(schedule.save_steps())}.")
    lines.append(f"validation after step {_listed(schedule.validation_steps())} (0 is before training).")
    return lines


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
    return lines


def _plugin_classes(config: Config, registry: Registry) -> dict[str, type]:
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


def _listed(steps: tuple[int, ...]) -> str:
    if not steps:
        return "none"
    if len(steps) <= _MOST_STEPS_LISTED:
        return ", ".join(map(str, steps))
    return f"{', '.join(map(str, steps[:3]))}, ..., {', '.join(map(str, steps[-2:]))} ({len(steps)} times)"
