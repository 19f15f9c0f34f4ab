"""Buckets in device memory that both processes map (CUDA IPC): no byte leaves the GPU.

One buffer a slot is shared, not one handle a tensor. The receiver maps it once and lets go of it at the end of a hand-over,
when the sender gives it back too, so between hand-overs the memory is the trainer's or the cache's. Two functions touch CUDA,
``share`` and ``map_shared``; the rest is plain.
"""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

import torch
from rl_core.errors import WeightSyncError
from torch import Tensor

from rl_resharding.layout import Handle
from rl_resharding.transport import Inbox, Outbox, Slot

_GRAIN: Final = 32 * 2**20
"""Buffers are multiples of it, so that buckets of nearly one size fit into one."""

_own: WeakValueDictionary[str, CudaSlot] = WeakValueDictionary()
"""Slots of this process by segment: CUDA does not map memory into the process that it is from."""


def share(flat: Tensor) -> dict[str, Any]:
    """What another process needs to map ``flat``, which starts its storage, in plain JSON values."""
    storage = flat.untyped_storage()
    # The first field is the sender's number of the device, which means nothing to others; the uuid does.
    _, handle, size, offset, counter, counter_offset, event, needs_wait = storage._share_cuda_()
    return {
        "device": str(torch.cuda.get_device_properties(flat.device).uuid),
        "handle": _text(handle),
        "size": size,
        "offset": offset,
        "counter": _text(counter),
        "counter_offset": counter_offset,
        "event": _text(event),
        "wait": needs_wait,
    }


def map_shared(at: Mapping[str, Any]) -> Tensor:
    """[n] uint8 over the memory that ``share`` described, in another process.

    Raises:
        WeightSyncError: this process does not see the device, or the sender has ended.
    """
    seen = [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
    if at["device"] not in seen:
        msg = f"a bucket lies on the GPU {at['device']}, and this process sees {seen} only; see CUDA_VISIBLE_DEVICES"
        raise WeightSyncError(msg)
    device = seen.index(at["device"])
    try:
        torch.cuda._lazy_init()
        storage = torch.UntypedStorage._new_shared_cuda(
            device,
            _raw(at["handle"]),
            at["size"],
            at["offset"],
            _raw(at["counter"]),
            at["counter_offset"],
            _raw(at["event"]),
            at["wait"],
        )
    except RuntimeError as error:
        msg = f"the device memory of a bucket cannot be mapped: {error}. Has its sender ended?"
        raise WeightSyncError(msg) from error
    return torch.empty(0, dtype=torch.uint8, device=f"cuda:{device}").set_(storage)


class CudaSlot(Slot):
    """A buffer on a GPU."""

    def __init__(self, num_bytes: int, device: torch.device) -> None:
        """Take ``num_bytes``."""
        self.flat = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        self._segment = uuid.uuid4().hex
        self._shared: dict[str, Any] | None = None
        _own[self._segment] = self

    def address(self) -> Mapping[str, Any]:
        """See ``Slot.address``; always the same, as each call to CUDA would count one more receiver."""
        if self._shared is None:
            self._shared = {**share(self.flat), "segment": self._segment, "pid": os.getpid()}
        return self._shared

    def close(self) -> None:
        """See ``Slot.close``."""
        _own.pop(self._segment, None)
        self.flat = torch.empty(0, dtype=torch.uint8)


class CudaIpcOutbox(Outbox):
    """Stages buckets in device memory."""

    kind: ClassVar[str] = "cuda_ipc"

    def __init__(self, bucket_bytes: int, device: torch.device) -> None:
        """Stage on ``device``."""
        super().__init__(bucket_bytes)
        self.device = device

    def _take(self, num_bytes: int) -> Slot:
        # Not ``bucket_bytes``: a small model would take the memory of a large one.
        return CudaSlot(-(-num_bytes // _GRAIN) * _GRAIN, self.device)

    def _publish(self, slot: Slot, num_bytes: int) -> None:
        # Nothing orders the receiver's stream behind this one.
        wait_for_stream(slot.flat.device)

    def rest(self) -> None:
        """See ``Outbox.rest``: the device memory goes back to torch's allocator."""
        self.close()


class CudaIpcInbox(Inbox):
    """Maps what a ``CudaIpcOutbox`` staged."""

    kind: ClassVar[str] = "cuda_ipc"

    def __init__(self) -> None:
        """Nothing is mapped yet."""
        self._opened: dict[str, Tensor] = {}

    def flat(self, handle: Handle) -> Tensor:
        """See ``Inbox.flat``."""
        segment = handle.at["segment"]
        if handle.at["pid"] == os.getpid():
            own = _own.get(segment)
            if own is None:
                msg = f"the device memory {segment} of a bucket was given back before it was read"
                raise WeightSyncError(msg)
            return own.flat
        if segment not in self._opened:
            self._opened[segment] = map_shared(handle.at)
        return self._opened[segment]

    def close(self) -> None:
        """See ``Inbox.close``."""
        self._opened.clear()


def wait_for_stream(device: torch.device) -> None:
    """Wait until everything that was started on ``device``'s current stream is done."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _raw(value: str) -> bytes:
    return base64.b64decode(value)
