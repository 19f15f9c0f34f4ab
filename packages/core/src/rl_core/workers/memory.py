"""How much memory a worker holds: what the phase table measures with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from rl_core.metrics import Metric

if TYPE_CHECKING:
    from rl_core.workers.phases import PhaseTable

GIB: Final = 2**30


class MemoryMeter:
    """Memory of one worker: of its CUDA device where it has one, of its process otherwise.

    On CUDA it is the peak of what torch has allocated since ``restart``; an engine with processes or an allocator of its
    own holds more. On the CPU it is the resident set at the moment of reading, since a process has no peak that starts
    anew; workers that share a process share it.
    """

    def __init__(self, device: str) -> None:
        """Measure ``device``, as torch spells it."""
        self._device = torch.device(device)

    @property
    def is_device(self) -> bool:
        """Whether ``read`` is about a device's own memory."""
        return self._device.type == "cuda"

    def restart(self) -> None:
        """Let the next ``read`` be about what comes from here on."""
        if self.is_device and torch.cuda.is_initialized():  # an engine that has not touched the device has no peak
            torch.cuda.reset_peak_memory_stats(self._device)

    def read(self) -> int:
        """Bytes."""
        return torch.cuda.max_memory_allocated(self._device) if self.is_device else resident_set()


def resident_set() -> int:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory_metrics(role: str, phases: PhaseTable) -> dict[str, Metric]:
    """Memory of the phases since the last call, each as the largest over the workers.

    Args:
        role: name of the worker group.
        phases: the worker's table; its measurements start anew.

    Returns:
        ``memory/<role>/<phase>_gib``, ``perf/cpu_memory_used_gb`` and, on CUDA, ``perf/max_memory_allocated_gb``; all in GiB.
    """
    measured: Mapping[str, int] = phases.take_memory()
    metrics = {f"memory/{role}/{phase}_gib": Metric(size / GIB, "max") for phase, size in measured.items()}
    metrics["perf/cpu_memory_used_gb"] = Metric(resident_set() / GIB, "max")
    if measured and phases.meter is not None and phases.meter.is_device:
        metrics["perf/max_memory_allocated_gb"] = Metric(max(measured.values()) / GIB, "max")
    return metrics
