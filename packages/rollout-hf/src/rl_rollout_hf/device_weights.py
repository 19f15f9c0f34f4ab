"""The memory of the model's weights: on the device, on the host, or gone.

Tensors stay the same objects throughout; only the storage behind them is emptied and taken again, so the model needs no
change, and what sleeps really is gone from the device. On the CPU, device and host are one memory, and the same happens.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, UntypedStorage


class DeviceWeights:
    """All weights of one model."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        """Take charge of ``tensors``, which are on the device; tied ones may come twice."""
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
        self._sizes = [(storage, storage.nbytes()) for storage in storages.values() if storage.nbytes()]
        self._kept: list[Tensor] | None = None
        self.is_resident = True

    @property
    def num_bytes(self) -> int:
        """Size of all of them, wherever they are."""
        return sum(size for _, size in self._sizes)

    def release(self, *, keep: bool) -> None:
        """Give the device memory back; with ``keep`` the values are copied to the host first."""
        if self.is_resident:
            if keep:
                self._kept = [_to_host(storage) for storage, _ in self._sizes]
                _synchronize(self._sizes)
            for storage, _ in self._sizes:
                storage.resize_(0)
            self.is_resident = False
        if not keep:
            self._kept = None

    def take(self) -> None:
        """Take device memory again, with the values if they were kept."""
        if self.is_resident:
            return
        for place, (storage, size) in enumerate(self._sizes):
            storage.resize_(size)
            if self._kept is not None:
                _bytes(storage).copy_(self._kept[place], non_blocking=True)
        _synchronize(self._sizes)
        self._kept = None
        self.is_resident = True


def _to_host(storage: UntypedStorage) -> Tensor:
    source = _bytes(storage)
    copy = torch.empty(source.numel(), dtype=torch.uint8, pin_memory=source.is_cuda)
    return copy.copy_(source, non_blocking=True)


def _bytes(storage: UntypedStorage) -> Tensor:
    """[nbytes] uint8 over the same memory."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _synchronize(sizes: Iterable[tuple[UntypedStorage, int]]) -> None:
    if any(storage.device.type == "cuda" for storage, _ in sizes):
        torch.cuda.synchronize()
