"""What of an engine is on the device, and moving it off and back.

A state leaves by copying its memory to the host and *emptying the storage* of its tensors; it comes back into the same
tensor objects. So every reference to them - in the model, in the optimizer, in a sharding library - stays valid, and
what is offloaded really is gone from the device. On the CPU, device and host are one memory, and the same happens there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import torch
from rl_core.contracts.engine import EngineState
from rl_core.errors import RlError
from torch import Tensor, UntypedStorage

Tensors = Callable[[], Iterable[Tensor]]
"""The tensors that make up a state now: plain ones on the device, in any order."""


class DeviceStates:
    """The states of one engine."""

    def __init__(self) -> None:
        """No state exists."""
        self._tensors: dict[EngineState, Tensors] = {}
        self._parked: dict[EngineState, list[tuple[UntypedStorage, Tensor]]] = {}

    def add(self, state: EngineState, tensors: Tensors) -> None:
        """From now on there is ``state``, on the device."""
        self._tensors[state] = tensors

    def clear(self) -> None:
        """No state exists any more."""
        self._tensors.clear()
        self._parked.clear()

    def resident(self) -> frozenset[EngineState]:
        """States on the device."""
        return frozenset(set(self._tensors) - set(self._parked))

    def require(self, what_for: str, *states: EngineState) -> None:
        """Raise ``RlError`` unless every one of ``states`` is on the device; says what to do."""
        for state in states:
            if state not in self._tensors:
                msg = f"{what_for} needs {state.value}, which this engine does not have: its role is not trained (no `optim`)"
                raise RlError(msg)
            if state in self._parked:
                msg = f"{what_for} needs {state.value} on the device, but they were offloaded; call onload({{{state!s}}}) first"
                raise RlError(msg)

    def offload(self, states: Collection[EngineState]) -> None:
        """Move ``states`` to the host; those that are not on the device are ignored."""
        for state in sorted(set(states) & self.resident()):
            storages = list(_storages(self._tensors[state]()))
            # Every copy is made before any memory is given up: a failure half way loses nothing.
            self._parked[state] = [(storage, _to_host(storage)) for storage in storages]
            if any(storage.device.type == "cuda" for storage in storages):
                torch.cuda.synchronize()
            for storage in storages:
                storage.resize_(0)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # otherwise only this process could use the memory again

    def onload(self, states: Collection[EngineState]) -> None:
        """Move ``states`` back to the device; those that are not on the host are ignored."""
        for state in sorted(set(states) & set(self._parked)):
            for storage, copy in self._parked[state]:
                storage.resize_(copy.numel())
                _bytes(storage).copy_(copy, non_blocking=True)
            if any(storage.device.type == "cuda" for storage, _ in self._parked[state]):
                torch.cuda.synchronize()
            del self._parked[state]

    def device_bytes(self) -> int:
        """Bytes of all states on the device."""
        return sum(self.bytes_by_state().values())

    def bytes_by_state(self) -> dict[EngineState, int]:
        """Bytes of each state on the device."""
        return {
            state: sum(storage.nbytes() for storage in _storages(self._tensors[state]()))
            for state in sorted(self.resident())
        }


def _storages(tensors: Iterable[Tensor]) -> Iterator[UntypedStorage]:
    """The memory behind ``tensors``, each block once."""
    seen: set[int] = set()
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            yield storage


def _to_host(storage: UntypedStorage) -> Tensor:
    source = _bytes(storage)
    copy = torch.empty(source.numel(), dtype=torch.uint8, pin_memory=storage.device.type == "cuda")
    return copy.copy_(source, non_blocking=True)


def _bytes(storage: UntypedStorage) -> Tensor:
    """[nbytes] uint8 over the same memory."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
