"""What the worker groups of one run share."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rl_core.runtime.ray.health import Member, RunHealth
from rl_core.runtime.ray.processes import read_on_nodes

if TYPE_CHECKING:
    from rl_core.runtime.ray.watchdog import Watchdog

_MOST_BYTES = 64 * 1024


@dataclass(frozen=True)
class RunLink:
    """What the groups of one run share.

    Attributes:
        health: members, pending calls, the first failure.
        environment: variables of every worker's process.
        start_deadline_s: seconds until a group's actors run and their workers are built.
        collective_deadline_s: seconds that a collective operation waits.
        board: actor that takes heartbeats; None for none.
        beat_s: seconds between them.
        watchdog: reads the board; None without one.
        on_cuda: whether workers compute on CUDA devices.
        directory: working directory of the workers, where their node has it; None is what Ray gives them.
        import_path: where workers look for modules besides their own path, so that they find what the driver finds.
    """

    health: RunHealth = field(default_factory=RunHealth)
    environment: Mapping[str, str] = field(default_factory=dict)
    start_deadline_s: float = 300.0
    collective_deadline_s: float = 600.0
    board: Any = None
    beat_s: float = 1.0
    watchdog: Watchdog | None = None
    on_cuda: bool = False
    directory: str | None = field(default_factory=os.getcwd)
    import_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    def last_lines(self, member: Member) -> list[str]:
        """What a worker whose process is gone has printed last, without secrets."""
        if self.watchdog is not None:
            return self.watchdog.last_lines(member)
        stretches = {member.node_id: [(member.name, path, start) for path, start in member.files]}
        text = self.health.redact(read_on_nodes(stretches, _MOST_BYTES).get(member.name, ""))
        return [line for line in text.splitlines() if line.strip()]

    def read_rest(self, members: Sequence[Member]) -> None:
        """Keep what workers whose processes are gone have printed last."""
        if self.watchdog is not None:
            self.watchdog.read_rest(members)

    def waits(self) -> str:
        """Who waits for whom, to be put below an error; empty when that is not known."""
        return "" if self.watchdog is None else self.watchdog.waits()
