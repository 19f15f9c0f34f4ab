"""Starts every role's workers in this process, one group a role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from rl_core.runtime.local import LocalWorkerGroup

if TYPE_CHECKING:
    from rl_core.single_controller.base import WorkerGroup
    from rl_core.single_controller.base.fused import ClassWithInitArgs
    from rl_core.single_controller.base.resource_pool import ResourcePoolManager


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

    def worker_groups(
        self, pools: ResourcePoolManager, classes: Mapping[Enum, ClassWithInitArgs]
    ) -> dict[Enum, WorkerGroup]:
        """See ``Runtime``; there is one pool, this process."""
        return {role: self._worker_group(str(role), make) for role, make in classes.items()}

    def _worker_group(self, name: str, make: ClassWithInitArgs) -> WorkerGroup:
        group = LocalWorkerGroup(
            make.cls,
            len(self._devices),
            *make.args,
            devices=self._devices,
            name=name,
            deadline_s=self._deadline_s,
            **make.kwargs,
        )
        self._groups.append(group)
        return group

    def shutdown(self) -> None:
        """See ``Runtime``."""
        while self._groups:
            self._groups.pop().shutdown()
