"""``tool=torch_memory``: every allocation on the GPU, for pytorch.org/memory_viz."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.config.profiler import ProfilerToolsConfig


class TorchMemory:
    """A recording of CUDA's allocator."""

    suffix = ".pickle"

    def __init__(self, tools: ProfilerToolsConfig, device: torch.device) -> None:
        """Store the arguments.

        Raises:
            ConfigError: the worker has no CUDA device.
        """
        require_cuda("torch_memory", device)
        self._config = tools.torch_memory

    def start(self) -> None:
        """Record from here on."""
        torch.cuda.memory._record_memory_history(max_entries=self._config.trace_alloc_max_entries)

    def stop(self, path: Path) -> None:
        """Write the recording to ``path``."""
        torch.cuda.memory._dump_snapshot(str(path))
        torch.cuda.memory._record_memory_history(enabled=None)


def require_cuda(tool: str, device: torch.device) -> None:
    """Refuse a tool that has nothing to record.

    Raises:
        ConfigError: ``device`` is no CUDA device.
    """
    if device.type != "cuda":
        msg = f"global_profiler.tool={tool} records CUDA; this worker is on {device}. Use global_profiler.tool=torch here."
        raise ConfigError(msg)
