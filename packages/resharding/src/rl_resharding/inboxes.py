"""The two ends, chosen by where the tensors are: a receiver opens whatever comes, a sender stages where its tensors lie."""

from __future__ import annotations

import torch
from rl_core.contracts.weights import WeightBucket
from rl_core.errors import WeightSyncError

from rl_resharding.cuda_ipc import CudaIpcInbox, CudaIpcOutbox
from rl_resharding.layout import Handle
from rl_resharding.shared_memory import SharedMemoryInbox, SharedMemoryOutbox
from rl_resharding.transport import Inbox, Outbox


def local_outbox(device: torch.device, bucket_bytes: int) -> Outbox:
    """For receivers on the same machine: device memory on a GPU, host memory elsewhere."""
    if device.type == "cuda":
        return CudaIpcOutbox(bucket_bytes, device)
    return SharedMemoryOutbox(bucket_bytes)


class LocalInbox:
    """Opens buckets of every transport within one machine."""

    def __init__(self) -> None:
        """Nothing is opened yet."""
        inboxes: tuple[Inbox, ...] = (SharedMemoryInbox(), CudaIpcInbox())
        self._inboxes = {inbox.kind: inbox for inbox in inboxes}

    def open(self, handle: bytes) -> WeightBucket:
        """See ``Inbox.open``."""
        kind = Handle.decode(handle).kind
        if kind not in self._inboxes:
            msg = f"a bucket came by {kind!r}; within one machine there are {sorted(self._inboxes)}"
            raise WeightSyncError(msg)
        return self._inboxes[kind].open(handle)

    def close(self) -> None:
        """See ``Inbox.close``."""
        for inbox in self._inboxes.values():
            inbox.close()
