"""Buckets in host memory that both processes map. For a CPU, and for tensors that lie on the host.

The memory has no name that could outlive it: on Linux it is an anonymous file (``memfd_create``), which the receiver opens
through the sender's process (``/proc/PID/fd/N``) and the kernel frees with the last process that maps it, however that ends.
So nothing is registered, nothing can leak, and no ``/dev/shm`` (64 MiB in a container) limits it. Elsewhere it is a file in
the folder for temporary files, which the sender removes.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import uuid
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

import torch
from rl_core.errors import WeightSyncError
from torch import Tensor

from rl_resharding.layout import Handle
from rl_resharding.transport import Inbox, Outbox, Slot


class SharedSlot(Slot):
    """A buffer on the host that other processes can map."""

    def __init__(self, num_bytes: int) -> None:
        """Take ``num_bytes``."""
        self._segment = uuid.uuid4().hex
        self._num_bytes = num_bytes
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("rl-resharding", os.MFD_CLOEXEC)
            self._path = f"/proc/{os.getpid()}/fd/{self._fd}"
            name = None
        else:
            self._fd, self._path = tempfile.mkstemp(prefix="rl-resharding-")
            name = self._path
        self._finalizer = weakref.finalize(self, _give_back, self._fd, name)
        os.ftruncate(self._fd, num_bytes)
        self.flat = _mapped(self._fd, num_bytes, is_sender=True)

    def address(self) -> Mapping[str, Any]:
        """See ``Slot.address``."""
        return {"path": self._path, "segment": self._segment, "size": self._num_bytes}

    def close(self) -> None:
        """See ``Slot.close``."""
        self._finalizer()
        self.flat = torch.empty(0, dtype=torch.uint8)


class SharedMemoryOutbox(Outbox):
    """Stages buckets in host memory."""

    kind: ClassVar[str] = "shared_memory"

    def _take(self, num_bytes: int) -> Slot:
        # Pages that are never written take no memory.
        return SharedSlot(max(num_bytes, self.bucket_bytes))


class SharedMemoryInbox(Inbox):
    """Maps what a ``SharedMemoryOutbox`` staged."""

    kind: ClassVar[str] = "shared_memory"

    def __init__(self) -> None:
        """Nothing is mapped yet."""
        self._opened: dict[str, Tensor] = {}

    def flat(self, handle: Handle) -> Tensor:
        """See ``Inbox.flat``."""
        path, segment, size = handle.at["path"], handle.at["segment"], handle.at["size"]
        if segment not in self._opened:
            # The path is the number of an open file, which the sender may give to another one.
            for stale in [name for name in self._opened if not self._is_last(name)]:
                del self._opened[stale]
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                msg = (
                    f"the shared memory of a bucket, {path}, cannot be opened ({error.strerror}): its sender has ended, or "
                    "runs as another user or in another container"
                )
                raise WeightSyncError(msg) from error
            try:
                self._opened[segment] = _mapped(fd, size, is_sender=False)
            except ValueError as error:
                msg = f"the shared memory of a bucket, {path}, is smaller than the {size} bytes it shall have"
                raise WeightSyncError(msg) from error
            finally:
                os.close(fd)
        return self._opened[segment]

    def _is_last(self, name: str) -> bool:
        return next(reversed(self._opened)) == name

    def close(self) -> None:
        """See ``Inbox.close``."""
        self._opened.clear()


def _mapped(fd: int, num_bytes: int, *, is_sender: bool) -> Tensor:
    # What a receiver writes stays its own: other receivers read the same memory.
    memory = mmap.mmap(fd, num_bytes, access=mmap.ACCESS_WRITE if is_sender else mmap.ACCESS_COPY)
    return torch.frombuffer(memory, dtype=torch.uint8)


def _give_back(fd: int, path: str | None) -> None:
    os.close(fd)
    if path is not None:
        with suppress(FileNotFoundError):
            os.unlink(path)
