"""``tool=nsys``: marks for a run under NVIDIA Nsight Systems, which does the recording itself.

Start the run below ``nsys profile --capture-range=cudaProfilerApi --capture-range-end=repeat --trace=cuda,nvtx,osrt``;
with Ray, start the cluster that way (``ray start``), since workers are its children.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rl_core.workers.profiling.torch_memory import require_cuda

if TYPE_CHECKING:
    from rl_core.config.profiler import ProfilerToolsConfig


class NsysRange:
    """The capture range of a step, with every phase and operator as an NVTX range."""

    suffix = ".txt"

    def __init__(self, tools: ProfilerToolsConfig, device: torch.device) -> None:
        """Check the device.

        Raises:
            ConfigError: the worker has no CUDA device.
        """
        require_cuda("nsys", device)
        self._marks = ExitStack()

    def start(self) -> None:
        """Record from here on."""
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        self._marks.enter_context(torch.autograd.profiler.emit_nvtx())

    def stop(self, path: Path) -> None:
        """End the range; the recording is Nsight's, ``path`` says so."""
        self._marks.close()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        path.write_text("The recording is in the .nsys-rep file of the nsys command that this run was started with.\n")
