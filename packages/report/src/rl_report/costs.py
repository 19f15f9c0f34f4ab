"""Where a run's time and memory went, by phase."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Final

from rl_report.run import Run

PHASES: Final = {
    "data": "batch",
    "gen": "generate",
    "old_log_prob": "score with the trainer",
    "ref": "score with the reference",
    "values": "values",
    "reward": "reward",
    "adv": "advantage",
    "update_critic": "update critic",
    "update_actor": "update actor",
    "update": "update",
    "testing": "validate",
    "save_checkpoint": "save checkpoint",
}
"""Name in ``timing_s/`` -> label, in the order of a step; what is not here is a part of one of them."""

_OUTSIDE: Final = "save_checkpoint"
"""Stands outside of ``timing_s/step``, with the step after it."""


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """Time of one phase.

    Attributes:
        label: of the phase.
        total_s: seconds over the whole run.
        median_s: seconds of a typical step that has the phase.
        share: of the run's time.
    """

    label: str
    total_s: float
    median_s: float
    share: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Time of a run.

    Attributes:
        total_s: seconds of all steps, checkpoints included.
        step_s: seconds of a typical step.
        phases: in the order of a step; they add up to ``total_s``.
        inside: what is a part of one of the phases.
    """

    total_s: float
    step_s: float
    phases: tuple[PhaseTime, ...]
    inside: tuple[PhaseTime, ...]


@dataclass(frozen=True, slots=True)
class PhaseMemory:
    """Memory of one phase: the largest of all steps and workers, in GiB."""

    role: str
    phase: str
    gib: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a run.

    Attributes:
        phases: by role, in the order of a step.
        is_device: whether it is a device's memory; otherwise the process's resident set.
        host_gib: largest resident set of a worker's process; None if not logged.
    """

    phases: tuple[PhaseMemory, ...]
    is_device: bool
    host_gib: float | None


def timing(run: Run) -> Timing:
    """Time by phase; everything is empty where a run logs no times."""
    seconds = {
        name.removeprefix("timing_s/"): run.series(name).values for name in run.names if name.startswith("timing_s/")
    }
    steps = seconds.pop("step", ())
    known = [name for name in PHASES if name in seconds] or sorted(seconds)
    in_steps = sum(sum(seconds[name]) for name in known if name != _OUTSIDE)
    rest = sum(steps) - in_steps
    total = max(sum(steps), in_steps) + sum(seconds.get(_OUTSIDE, ()))
    if not total:
        return Timing(0.0, 0.0, (), ())

    def phase(name: str) -> PhaseTime:
        values = seconds[name]
        label = PHASES.get(name, name.replace("_", " "))
        return PhaseTime(label, sum(values), median(values or (0.0,)), sum(values) / total)

    phases = [phase(name) for name in known]
    if rest > 0.005 * total:
        phases.append(PhaseTime("everything else", rest, rest / len(steps), rest / total))
    return Timing(
        total_s=total,
        step_s=median(steps) if steps else 0.0,
        phases=tuple(phases),
        inside=tuple(phase(name) for name in sorted(seconds) if name not in known),
    )


def memory(run: Run) -> Memory:
    """Memory by phase; empty where a run logs none."""
    order = (
        "sync_weights",
        "generate",
        "log_prob",
        "ref_log_prob",
        "values",
        "reward_model",
        "update_reward_model",
        "update_critic",
        "update_actor",
        "update_sft",
        "compute_loss",
    )
    found = []
    for name in run.names:
        parts = name.split("/")
        if len(parts) == 3 and parts[0] == "memory" and parts[2].endswith("_gib") and run.series(name):
            found.append(PhaseMemory(parts[1], parts[2].removesuffix("_gib"), max(run.series(name).values)))
    found.sort(key=lambda item: (item.role, order.index(item.phase) if item.phase in order else len(order)))
    host = run.series("perf/cpu_memory_used_gb")
    return Memory(
        phases=tuple(found),
        is_device=bool(run.series("perf/max_memory_allocated_gb")),
        host_gib=max(host.values, default=None),
    )
