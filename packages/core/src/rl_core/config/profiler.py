"""``global_profiler.*`` and the ``profiler`` section of a role: which steps and ranks are recorded, with what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rl_core.config.node import Node, choice, number

if TYPE_CHECKING:
    from rl_core.config.compose import Config

CONTENTS = ("cpu", "cuda", "memory", "shapes", "stack", "modules")
"""What ``contents`` may name."""


@dataclass
class TorchProfilerConfig(Node):
    """``tool=torch``."""

    contents: list[str] = field(default_factory=lambda: ["cpu", "cuda"])
    """What a trace holds: ``cpu`` and ``cuda`` activity, ``memory``, ``shapes``, ``stack``, ``modules``. The last four make it
    large and the step slow."""


@dataclass
class TorchMemoryConfig(Node):
    """``tool=torch_memory``."""

    trace_alloc_max_entries: int = number(100_000, ge=1)
    """Allocations that are kept, the newest ones."""


@dataclass
class ProfilerToolsConfig(Node):
    """Settings of the tools."""

    torch: TorchProfilerConfig = field(default_factory=TorchProfilerConfig)
    """Of ``torch``."""

    torch_memory: TorchMemoryConfig = field(default_factory=TorchMemoryConfig)
    """Of ``torch_memory``."""


@dataclass
class GlobalProfilerConfig(Node):
    """Profiler of the run."""

    tool: str | None = choice(None, "torch", "torch_memory", "nsys")
    """``torch``: a trace for Perfetto or chrome://tracing. ``torch_memory``: a snapshot of CUDA's allocator for
    pytorch.org/memory_viz. ``nsys``: NVTX ranges and a capture range for a run under NVIDIA Nsight Systems. Null records
    nothing."""

    steps: list[int] | None = None
    """Training steps that are recorded, from 1."""

    profile_continuous_steps: bool = False
    """Record neighbouring steps as one."""

    save_path: str | None = None
    """Folder of the recordings; null takes ``profile`` in the run folder."""

    global_tool_config: ProfilerToolsConfig = field(default_factory=ProfilerToolsConfig)
    """Settings of the tools."""


@dataclass
class RoleProfilerConfig(Node):
    """Which workers of a role are recorded."""

    enable: bool = True
    """Record this role in the steps of ``global_profiler``. Roles that share processes are recorded when one of them is."""

    all_ranks: bool = False
    """Every rank."""

    ranks: list[int] = field(default_factory=lambda: [0])
    """Ranks, where not all."""


def profiler_findings(config: Config) -> Iterator[tuple[Literal["error", "warning"], str]]:
    """What is wrong with the profiler's keys, for ``rl check`` and before a run."""
    section: Any = config.tree.global_profiler
    tools = section.global_tool_config
    if unknown := sorted(set(tools.torch.contents) - set(CONTENTS)):
        yield (
            "error",
            f"global_profiler.global_tool_config.torch.contents names {unknown}; it knows {list(CONTENTS)}.",
        )
    if section.tool is None:
        if section.steps:
            yield "warning", "global_profiler.steps is given without global_profiler.tool, so nothing is recorded."
        return
    if not section.steps:
        yield (
            "error",
            f"global_profiler.tool is {section.tool}, but no step is to be recorded. Set global_profiler.steps, for "
            "example to [3]: the first steps of a run load and compile.",
        )
        return
    last = config.tree.trainer.total_training_steps
    if (first := min(section.steps)) < 1 or (last is not None and max(section.steps) > last):
        yield (
            "error",
            f"global_profiler.steps goes from {first} to {max(section.steps)}; this run has steps 1 to {last or 'its end'}.",
        )
    if section.tool != "torch" and config.tree.trainer.device == "cpu":
        yield "error", f"global_profiler.tool={section.tool} records CUDA; trainer.device is cpu. Use tool=torch there."
