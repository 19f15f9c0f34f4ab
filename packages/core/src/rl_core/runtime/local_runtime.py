"""Starts every role's workers in this process, one group a role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_core.runtime.local import LocalWorkerGroup
from rl_core.single_controller.base import Worker, WorkerGroup


class LocalRuntime:
    """The local ``Runtime``: all roles share the process, as co-located roles share a device."""

    def __init__(self, devices: Sequence[str], *, deadline_s: float) -> None:
        """Store the arguments.

        Args:
            devices: device of each worker; every group has as many workers.
            deadline_s: seconds that one method call may take.
        """
        self._devices = list(devices)
        self._deadline_s = deadline_s
        self._groups: list[WorkerGroup] = []

    def worker_group(self, name: str, worker_class: type[Worker], *args: Any, **kwargs: Any) -> WorkerGroup:
        """See ``Runtime``."""
        group = LocalWorkerGroup(
            worker_class,
            len(self._devices),
            *args,
            devices=self._devices,
            name=name,
            deadline_s=self._deadline_s,
            **kwargs,
        )
        self._groups.append(group)
        return group

    def shutdown(self) -> None:
        """See ``Runtime``."""
        while self._groups:
            self._groups.pop().shutdown()
