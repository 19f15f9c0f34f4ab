"""Buckets by broadcast between processes that share no memory: a trainer's pool and a generator's pool.

A group of its own joins one sender (rank 0) and the receivers; torch's default group stays out of it. The control message
(the handle) goes another way, for example by RPC, and both sides broadcast when they have it. gloo for host memory, NCCL for
GPUs. A peer that is gone ends the wait at the deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final, Literal, Protocol

import torch
import torch.distributed as dist
from rl_core.contracts.weights import WeightBucket
from rl_core.errors import WeightSyncError
from torch import Tensor

from rl_resharding.layout import Handle
from rl_resharding.transport import Inbox, Outbox, Slot, StagedBucket

SENDER: Final = 0
"""Rank of the sender."""


class Broadcast(Protocol):
    """One member of a group."""

    def start(self, flat: Tensor) -> Any:
        """Begin to broadcast ``flat`` from the sender; the result has ``wait()``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
    """How the members of a group find each other.

    Attributes:
        host: of the sender.
        port: on which the sender listens.
        world_size: members, the sender included.
        backend: ``gloo`` for host memory, ``nccl`` for GPUs.
        deadline_s: how long any member waits for the others.
    """

    host: str
    port: int
    world_size: int
    backend: Literal["gloo", "nccl"] = "gloo"
    deadline_s: float = 300.0


def join(meeting: Meeting, rank: int) -> Broadcast:
    """Enter the group as ``rank``; returns when all are there.

    Raises:
        WeightSyncError: they did not all come in time.
    """
    deadline = timedelta(seconds=meeting.deadline_s)
    try:
        store_class: Any = dist.TCPStore  # type: ignore[attr-defined]  # torch exports it without saying so
        store = store_class(meeting.host, meeting.port, meeting.world_size, is_master=rank == SENDER, timeout=deadline)
        group: Any
        if meeting.backend == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = deadline
            group = dist.ProcessGroupNCCL(store, rank, meeting.world_size, options)
        else:
            group = dist.ProcessGroupGloo(store, rank, meeting.world_size, deadline)
    except (RuntimeError, dist.DistError) as error:
        msg = (
            f"rank {rank} of {meeting.world_size} found no others at {meeting.host}:{meeting.port} within "
            f"{meeting.deadline_s:g} s: {error}"
        )
        raise WeightSyncError(msg) from error
    return _Group(group, store)


class _Group:
    def __init__(self, group: Any, store: Any) -> None:
        self._group, self._store = group, store

    def start(self, flat: Tensor) -> Any:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = SENDER, 0
        return self._group.broadcast([flat], options)


class _LocalSlot(Slot):
    def __init__(self, flat: Tensor) -> None:
        self.flat = flat
        self.sending: Any = None

    def address(self) -> Mapping[str, Any]:
        return {}

    def settle(self) -> None:
        """Wait for the broadcast under way."""
        work, self.sending = self.sending, None
        if work is not None:
            _wait(work, self.flat)

    def close(self) -> None:
        self.settle()


class ProcessGroupOutbox(Outbox):
    """Broadcasts each bucket as it is staged; ``stage`` waits for the one before the last."""

    kind: ClassVar[str] = "process_group"

    def __init__(self, bucket_bytes: int, group: Broadcast, device: torch.device) -> None:
        """Send through ``group`` from buffers on ``device``."""
        super().__init__(bucket_bytes)
        self._group = group
        self._device = device

    def stage(self, bucket: WeightBucket) -> StagedBucket:
        """See ``Outbox.stage``; the bytes are on their way when this returns."""
        slot = self._slots[self._turn]
        if isinstance(slot, _LocalSlot):
            slot.settle()
        return super().stage(bucket)

    def _take(self, num_bytes: int) -> Slot:
        return _LocalSlot(torch.empty(max(num_bytes, 1), dtype=torch.uint8, device=self._device))

    def _publish(self, slot: Slot, num_bytes: int) -> None:
        if isinstance(slot, _LocalSlot):
            slot.sending = self._group.start(slot.flat[:num_bytes])


class ProcessGroupInbox(Inbox):
    """Takes part in the broadcast of each bucket that it is told of."""

    kind: ClassVar[str] = "process_group"

    def __init__(self, group: Broadcast, device: torch.device) -> None:
        """Receive through ``group`` into a buffer on ``device``."""
        self._group = group
        self._device = device
        self._flat = torch.empty(0, dtype=torch.uint8, device=device)

    def flat(self, handle: Handle) -> Tensor:
        """See ``Inbox.flat``."""
        if self._flat.numel() < handle.num_bytes:
            self._flat = torch.empty(handle.num_bytes, dtype=torch.uint8, device=self._device)
        used = self._flat[: handle.num_bytes]
        _wait(self._group.start(used), used)
        return used

    def close(self) -> None:
        """See ``Inbox.close``."""
        self._flat = torch.empty(0, dtype=torch.uint8, device=self._device)


def _wait(work: Any, flat: Tensor) -> None:
    try:
        work.wait()
        if flat.is_cuda:
            torch.cuda.current_stream(flat.device).synchronize()
    except RuntimeError as error:
        msg = f"a bucket of {flat.numel()} bytes was not broadcast: {error}"
        raise WeightSyncError(msg) from error
