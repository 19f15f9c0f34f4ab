"""What a report says about the steps of a run and about where its workers can be placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rl_core.config.report import POOLS, STEPS, Finding, Report
from rl_core.config.roles import pools
from rl_core.config.runtime_choice import missing_runtime, runtime_name
from rl_core.config.schedule import StepSchedule, drops_groups, step_schedule
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.config.layout import RunTree

_MOST_STEPS_LISTED: Final = 8


def check_steps(tree: RunTree, dataset_size: int | None, report: Report) -> None:
    """Tell how many steps the run has, or why there is none."""
    if dataset_size is None:
        trainer = tree.trainer
        limit = trainer.total_training_steps
        end = f", or {limit} steps if that is less" if limit else ""
        report.notes.append(Finding(STEPS, f"{trainer.total_epochs} epochs{end}; the number of rows is not known yet."))
        return
    try:
        schedule = step_schedule(tree, dataset_size)
    except ConfigError as error:
        report.errors.append(Finding(STEPS, str(error)))
        return
    report.notes += [Finding(STEPS, line) for line in step_lines(tree, schedule, dataset_size)]


def step_lines(tree: RunTree, schedule: StepSchedule, dataset_size: int) -> list[str]:
    """How many steps, and after which of them a checkpoint and a validation follow."""
    rest = dataset_size - schedule.steps_per_epoch * tree.data.train_batch_size
    left = f", {rest} rows left over per epoch" if rest else ""
    lines = [
        f"{dataset_size:,} rows / {tree.data.train_batch_size:,} = {schedule.steps_per_epoch:,} steps per epoch{left}; "
        f"x {tree.trainer.total_epochs} epochs, {schedule.total_steps:,} steps in all."
    ]
    if drops_groups(tree):
        lines.append(
            "algorithm.filter_groups drops prompts whose rewards are all equal: so many steps are the most, the run ends "
            "when the epochs are over."
        )
    limit = tree.trainer.total_training_steps
    if limit is not None and limit > schedule.total_steps:
        lines.append(f"trainer.total_training_steps is {limit}, but the epochs end after {schedule.total_steps} steps.")
    saves, validations = schedule.save_steps(), schedule.validation_steps()
    lines.append(f"checkpoint after step {_listed(saves)}." if saves else "no checkpoint.")
    lines.append(
        f"validation after step {_listed(validations)} (0 is before training)." if validations else "no validation."
    )
    return lines


def check_placement(tree: RunTree, report: Report) -> None:
    """Tell where the workers live, or why they cannot be placed."""
    # The machine that checks need not be the one that trains, so its own devices prove nothing.
    missing = missing_runtime(tree, has_cuda=tree.trainer.device == "cuda")
    if missing is not None:
        report.blockers.append(Finding(POOLS, missing))
    else:
        report.notes.append(Finding(POOLS, runtime_line(tree)))


def runtime_line(tree: RunTree) -> str:
    """Which runtime the run gets, and what that makes of its workers."""
    num_workers = sum(pool.num_workers for pool in pools(tree))
    here, cluster = (
        "in this process" if num_workers == 1 else f"{num_workers} threads of this process",
        "one process of a Ray cluster" if num_workers == 1 else f"{num_workers} processes of a Ray cluster",
    )
    kinds = {"local": here, "ray": cluster}
    on_cpu, on_cuda = (runtime_name(tree, has_cuda=has_cuda) for has_cuda in (False, True))
    if on_cpu != on_cuda:
        return f"runtime: {kinds[on_cpu]} on the CPU; {kinds[on_cuda]} where there is CUDA."
    return f"runtime: {kinds[on_cpu]}."


def _listed(steps: tuple[int, ...]) -> str:
    if len(steps) <= _MOST_STEPS_LISTED:
        return ", ".join(map(str, steps))
    return f"{', '.join(map(str, steps[:3]))}, ..., {', '.join(map(str, steps[-2:]))} ({len(steps)} times)"
