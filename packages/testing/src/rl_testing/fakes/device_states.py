"""A pretended device: tensors of an engine by state, each either here or on the host.

Two dictionaries stand for two memories. A state that leaves is copied to the host and its device tensors are dropped,
so whoever kept an old tensor object notices.
"""

from __future__ import annotations

from collections.abc import Collection

from rl_core.contracts.engine import EngineState
from rl_core.errors import RlError
from torch import Tensor


class DeviceStates:
    """The tensors of one engine, by state."""

    def __init__(self) -> None:
        """Start empty: no state exists."""
        self.device: dict[EngineState, dict[str, Tensor]] = {}
        self.host: dict[EngineState, dict[str, Tensor]] = {}

    def put(self, state: EngineState, tensors: dict[str, Tensor]) -> None:
        """Create or replace ``state`` on the device."""
        self.device[state] = tensors
        self.host.pop(state, None)

    def empty(self, state: EngineState) -> None:
        """Drop the tensors of ``state``, which stays where it is."""
        (self.host if state in self.host else self.device)[state] = {}

    def get(self, state: EngineState, what_for: str) -> dict[str, Tensor]:
        """The device tensors of ``state``.

        Raises:
            RlError: they are on the host, or the engine has no such state.
        """
        if state in self.device:
            return self.device[state]
        if state in self.host:
            msg = f"{what_for} needs {state.value} on the device, but they were offloaded: call onload({{{state!s}}}) first"
        else:
            msg = f"{what_for} needs {state.value}, which this engine has not: it was built without an `optim` section"
        raise RlError(msg)

    def offload(self, states: Collection[EngineState]) -> None:
        """Move ``states`` to the host; those that are not on the device are ignored."""
        for state in set(states) & set(self.device):
            self.host[state] = _copies(self.device.pop(state))

    def onload(self, states: Collection[EngineState]) -> None:
        """Move ``states`` to the device; those that are not on the host are ignored."""
        for state in set(states) & set(self.host):
            self.device[state] = _copies(self.host.pop(state))

    def resident(self) -> frozenset[EngineState]:
        """States on the device."""
        return frozenset(self.device)

    def device_bytes(self) -> int:
        """Bytes on the device."""
        return sum(tensor.nbytes for tensors in self.device.values() for tensor in tensors.values())

    def clear(self) -> None:
        """Drop everything."""
        self.device.clear()
        self.host.clear()


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
