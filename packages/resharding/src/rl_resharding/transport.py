"""What every transport has: an outbox that stages buckets on the sender's side, and an inbox that opens them.

An outbox has two buffers and uses them in turn, so that one can be filled while the receiver reads the other: before the
third ``stage``, what the first returned must have been read. Buffers are taken with the first bucket, kept, and replaced by
larger ones when a bucket (one tensor at least) does not fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from rl_core.contracts.weights import WeightBucket
from rl_core.errors import WeightSyncError
from torch import Tensor

from rl_resharding.layout import Handle, places_of, slices_in


@dataclass(frozen=True, slots=True)
class StagedBucket(WeightBucket):
    """A bucket whose slices are views of an outbox's buffer.

    Attributes:
        handle: opens it in another process.
    """

    handle: bytes = b""


class Slot(ABC):
    """One buffer that another process can open.

    Attributes:
        flat: [n] uint8.
    """

    flat: Tensor

    @abstractmethod
    def address(self) -> Mapping[str, Any]:
        """Where it is, in plain JSON values."""

    @abstractmethod
    def close(self) -> None:
        """Give the memory back; what others have opened stays theirs until they close it."""


class Outbox(ABC):
    """Stages buckets; belongs to one sender."""

    kind: ClassVar[str]
    """Name of the transport."""

    def __init__(self, bucket_bytes: int) -> None:
        """Stage buckets of about ``bucket_bytes``."""
        self.bucket_bytes = bucket_bytes
        self._slots: list[Slot | None] = [None, None]
        self._turn = 0

    def stage(self, bucket: WeightBucket) -> StagedBucket:
        """Copy ``bucket`` into the next buffer; when this returns, the bytes are there for every process.

        The result and its handle are valid until the call after the next.
        """
        places, num_bytes = places_of(bucket)
        slot = self._next_slot(num_bytes)
        slices = slices_in(slot.flat, places)
        if slices:
            torch._foreach_copy_([part.tensor for part in slices], [part.tensor.detach() for part in bucket.slices])
        self._publish(slot, num_bytes)
        handle = Handle(self.kind, slot.address(), num_bytes, bucket.index, places)
        return StagedBucket(slices, bucket.index, handle.encode())

    def rest(self) -> None:  # noqa: B027 - host memory is kept: to take it anew costs more than to copy into it
        """A hand-over has ended: give back what others could use meanwhile."""

    def close(self) -> None:
        """Give all buffers back. May be called twice."""
        for place, slot in enumerate(self._slots):
            self._slots[place] = None
            if slot is not None:
                slot.close()

    @abstractmethod
    def _take(self, num_bytes: int) -> Slot:
        """A new buffer of at least ``num_bytes``."""

    def _publish(self, slot: Slot, num_bytes: int) -> None:  # noqa: B027 - host memory is visible at once
        """Make what was copied visible to the receiver."""

    def _next_slot(self, num_bytes: int) -> Slot:
        place, self._turn = self._turn, 1 - self._turn
        slot = self._slots[place]
        if slot is None or slot.flat.numel() < num_bytes:
            if slot is not None:
                self._slots[place] = None
                slot.close()
            slot = self._slots[place] = self._take(max(num_bytes, 1))
        return slot


class Inbox(ABC):
    """Opens what an outbox staged; belongs to one receiver."""

    kind: ClassVar[str]
    """Name of the transport."""

    def open(self, handle: bytes) -> WeightBucket:
        """The staged bucket, as views that are valid until the next ``open``.

        Raises:
            WeightSyncError: the handle is of another transport, or what it names is not there.
        """
        read = Handle.decode(handle)
        if read.kind != self.kind:
            msg = f"a bucket came by {read.kind!r}, this is the inbox of {self.kind!r}"
            raise WeightSyncError(msg)
        return WeightBucket(slices_in(self.flat(read), read.places), read.index)

    @abstractmethod
    def flat(self, handle: Handle) -> Tensor:
        """The buffer ([n] uint8) that ``handle`` names, its bytes there."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything that was opened. May be called twice; opening again is allowed."""
