"""``tool=torch``: what the CPU and the GPU did, for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from rl_core.config.profiler import ProfilerToolsConfig

ACTIVITIES = {"cpu": torch.profiler.ProfilerActivity.CPU, "cuda": torch.profiler.ProfilerActivity.CUDA}


class TorchTrace:
    """A recording of ``torch.profiler``; start and stop belong to one thread, which does the work in between."""

    suffix = ".json.gz"

    def __init__(self, tools: ProfilerToolsConfig, device: torch.device) -> None:
        """Store the arguments; CUDA activity is left out on a CPU."""
        contents = tools.torch.contents
        here = {"cpu", "cuda"} if device.type == "cuda" else {"cpu"}
        self._profiler = torch.profiler.profile(
            activities=[activity for name, activity in ACTIVITIES.items() if name in contents and name in here],
            profile_memory="memory" in contents,
            record_shapes="shapes" in contents,
            with_stack="stack" in contents,
            with_modules="modules" in contents,
        )

    def start(self) -> None:
        """Record from here on."""
        self._profiler.start()

    def stop(self, path: Path) -> None:
        """Write the recording to ``path``."""
        self._profiler.stop()
        self._profiler.export_chrome_trace(str(path))
