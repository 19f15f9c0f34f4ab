"""What a report says about memory: a table of phases for each pool, the peak, and what to change when it does not fit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rl_core.config.device_size import local_device_bytes
from rl_core.config.memory_knobs import advice
from rl_core.config.memory_plan import GIB, MemoryPlan, PhaseMemory, PoolMemory, memory_plan
from rl_core.config.memory_roles import sequence_tokens
from rl_core.config.offline import OfflineConfig
from rl_core.config.report import MEMORY, Finding, Report
from rl_core.errors import ConfigError, PluginError

if TYPE_CHECKING:
    from rl_core.config.layout import RunTree
    from rl_core.config.root import PPOTrainerConfig
    from rl_core.plugins import Registry


def check_memory(tree: RunTree, registry: Registry, report: Report) -> None:
    """Predict the memory of the run's devices, and warn where it does not fit. Skipped where errors stand already."""
    if report.errors:
        return
    if tree.trainer.device == "cpu":
        report.notes.append(Finding(MEMORY, "predicted for GPUs alone; workers on a CPU share the machine's memory."))
        return
    asked = tree.trainer.device_memory_gib
    size = local_device_bytes() if asked is None else int(asked * GIB)
    try:
        plan = memory_plan(tree, registry, size)
    except (ConfigError, PluginError) as error:
        report.notes.append(Finding(MEMORY, f"not predicted: {error}."))
        return
    report.notes += [Finding(MEMORY, f"not predicted for {who}: {why}.") for who, why in plan.unknown.items()]
    for pool in plan.pools:
        report.notes.append(Finding(MEMORY, pool_text(pool, size)))
        report.warnings += [Finding(MEMORY, text) for text in too_much(pool, size)]
    if not isinstance(tree, OfflineConfig):
        _check_cache(tree, plan, report, size)


def pool_text(pool: PoolMemory, device_bytes: int | None) -> str:
    """The largest phase in words, then the table; in GiB for one device."""
    peak = pool.peak
    of = f" of {_gib(device_bytes)}" if device_bytes is not None else ""
    unknown = "" if device_bytes is not None else " Set trainer.device_memory_gib to compare it with a device."
    lines = [
        f"{pool.pool.name}, on each device: at most {_gib(peak.total)}{of} GiB, in {peak.phase} (predicted).{unknown}",
        f"{'phase':<20} {'in all':>7} {'work':>7}  resident",
        *(_row(phase) for phase in pool.phases),
    ]
    return "\n".join(lines)


def too_much(pool: PoolMemory, device_bytes: int | None) -> list[str]:
    """A warning for the phase that needs most, when that is more than a device has."""
    peak = pool.peak
    if device_bytes is None or peak.total <= device_bytes:
        return []
    also = sum(phase.total > device_bytes for phase in pool.phases) - 1
    others = f" ({also} other phase{'s' * (also > 1)} too)" if also else ""
    help_lines = "; ".join(advice(peak.phase, peak.states))
    return [
        f"{peak.phase} is predicted to need {_gib(peak.total)} GiB on each device of {pool.pool.name}, which has "
        f"{_gib(device_bytes)}{others}. What helps: {help_lines}."
    ]


def _row(phase: PhaseMemory) -> str:
    sizes: Counter[str] = Counter()
    for (part, _), size in phase.states.items():
        sizes[part] += size
    sizes["processes"] = phase.processes
    parts = ", ".join(f"{part} {_gib(size)}" for part, size in sizes.items())
    return f"{phase.phase:<20} {_gib(phase.total):>7} {_gib(phase.work):>7}  {parts}"


def _check_cache(tree: PPOTrainerConfig, plan: MemoryPlan, report: Report, device_bytes: int | None) -> None:
    rollout = tree.actor_rollout_ref.rollout
    for pool in plan.pools:
        if pool.rollout is None:
            continue
        tokens = pool.rollout.cache_tokens
        if tokens is None:
            text = "the generator's cache: not known without the device's size; set trainer.device_memory_gib."
            report.notes.append(Finding(MEMORY, text))
            continue
        span = rollout.tensor_model_parallel_size * rollout.pipeline_model_parallel_size * rollout.data_parallel_size
        replicas = max(1, pool.pool.num_workers // span)
        longest = sequence_tokens(tree)
        asked = -(-tree.data.train_batch_size * rollout.n // replicas)
        wanted = min(asked, rollout.max_num_seqs)
        concurrency = tokens / longest
        text = (
            f"the generator's cache holds {tokens:,} tokens, {concurrency:,.1f} sequences of {longest:,} tokens at a time; a "
            f"step asks each replica for {asked:,}, at most {rollout.max_num_seqs:,} at a time (rollout.max_num_seqs)."
        )
        report.notes.append(Finding(MEMORY, text))
        if concurrency < wanted:
            report.warnings.append(Finding(MEMORY, _crawls(rollout.gpu_memory_utilization, concurrency, wanted)))


def _crawls(share: float, concurrency: float, wanted: int) -> str:
    if concurrency < 1:
        return (
            f"the generator's cache holds less than one sequence (rollout.gpu_memory_utilization is {share}): it would not "
            "start. Raise that share, or lower the lengths of prompt and response."
        )
    return (
        f"the generator's cache holds {concurrency:,.0f} of the {wanted:,} longest sequences that could run at a time: "
        f"generation crawls when responses are long. Raise actor_rollout_ref.rollout.gpu_memory_utilization ({share}), or "
        "slice the model over more workers."
    )


def _gib(size: int) -> str:
    return f"{size / GIB:.1f}"
