"""The calls that start and stop a recording on the workers of a group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import torch

from rl_core.single_controller.base import Dispatch, Worker, WorkerContext, register
from rl_core.workers.profiling.nsys import NsysRange
from rl_core.workers.profiling.torch_memory import TorchMemory
from rl_core.workers.profiling.torch_trace import TorchTrace

if TYPE_CHECKING:
    from rl_core.config.profiler import GlobalProfilerConfig, ProfilerToolsConfig, RoleProfilerConfig

logger = logging.getLogger(__name__)


class Recording(Protocol):
    """One recording of one worker."""

    suffix: str
    """Of its file."""

    def start(self) -> None:
        """Record from here on."""

    def stop(self, path: Path) -> None:
        """Write it to ``path``."""


TOOLS: Final[Mapping[str, Callable[[ProfilerToolsConfig, torch.device], Recording]]] = {
    "torch": TorchTrace,
    "torch_memory": TorchMemory,
    "nsys": NsysRange,
}
"""``global_profiler.tool`` -> what records."""


class ProfiledWorker(Worker):
    """A worker whose steps can be recorded."""

    def __init__(
        self,
        context: WorkerContext,
        *,
        name: str,
        profiler: GlobalProfilerConfig | None,
        roles: Sequence[RoleProfilerConfig] = (),
    ) -> None:
        """Take a place in a group.

        Args:
            context: this worker's place.
            name: of the group, in the recordings' paths.
            profiler: of the run; None for a run that has none.
            roles: the ``profiler`` sections of the roles that this process plays.
        """
        super().__init__(context)
        self._name = name
        self._profiler = profiler
        self._is_recorded = any(is_recorded(role, context.rank) for role in roles)
        self._recording: Recording | None = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def start_profile(self) -> None:
        """Record what follows, where this rank is meant.

        Raises:
            ConfigError: the tool has nothing to record on this device.
        """
        config = self._profiler
        if config is None or config.tool is None or not self._is_recorded:
            return
        recording = TOOLS[config.tool](config.global_tool_config, torch.device(self.device))
        recording.start()
        self._recording = recording

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def stop_profile(self, folder: str, label: str) -> str | None:
        """Write the recording.

        Args:
            folder: of the run's recordings.
            label: of the steps.

        Returns:
            Its file; None on a rank that is not recorded.
        """
        recording, self._recording = self._recording, None
        if recording is None:
            return None
        path = Path(folder) / self._name / f"{label}_rank_{self.rank}{recording.suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        recording.stop(path)
        logger.info("recorded %s of %s rank %d: %s", label, self._name, self.rank, path)
        return str(path)


def is_recorded(profiler: RoleProfilerConfig, rank: int) -> bool:
    """Whether ``rank`` of the role is recorded."""
    return profiler.enable and (profiler.all_ranks or rank in profiler.ranks)
