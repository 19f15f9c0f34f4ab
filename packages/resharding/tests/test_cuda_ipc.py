"""What of CUDA IPC does not need CUDA: the two functions that touch it are replaced by ones on host memory."""

from __future__ import annotations

import json
import os

import pytest
import torch
from rl_core.errors import WeightSyncError
from rl_resharding import cuda_ipc
from rl_resharding.cuda_ipc import CudaIpcInbox, CudaIpcOutbox
from rl_resharding.inboxes import LocalInbox, local_outbox
from rl_resharding.shared_memory import SharedMemoryOutbox

CPU = torch.device("cpu")


class Device:
    """Host memory in the place of a GPU's."""

    def __init__(self) -> None:
        self.shared: list[torch.Tensor] = []
        self.maps = self.waits = 0

    def share(self, flat):
        self.shared.append(flat)
        return {"number": len(self.shared) - 1}

    def map_shared(self, at):
        self.maps += 1
        return self.shared[at["number"]]

    def wait_for_stream(self, device):
        self.waits += 1


@pytest.fixture
def device(monkeypatch):
    found = Device()
    monkeypatch.setattr(cuda_ipc, "_GRAIN", 1 << 12)
    for name in ("share", "map_shared", "wait_for_stream"):
        monkeypatch.setattr(cuda_ipc, name, getattr(found, name))
    return found


def elsewhere(handle: bytes) -> bytes:
    """As if another process had sent it."""
    fields = json.loads(handle)
    fields["at"]["pid"] = os.getpid() + 1
    return json.dumps(fields).encode()


def test_each_buffer_is_shared_and_mapped_once(device, make_bucket, same):
    outbox, inbox = CudaIpcOutbox(1 << 12, CPU), CudaIpcInbox()
    for seed in range(6):
        bucket = make_bucket(seed)
        assert same(inbox.open(elsewhere(outbox.stage(bucket).handle)).slices, bucket.slices)
    assert (len(device.shared), device.maps, device.waits) == (2, 2, 6)


def test_the_process_of_the_buffer_reads_it_without_mapping(device, make_bucket, same):
    outbox, inbox = CudaIpcOutbox(1 << 12, CPU), CudaIpcInbox()
    bucket = make_bucket(1)
    handle = outbox.stage(bucket).handle
    assert same(inbox.open(handle).slices, bucket.slices)
    assert device.maps == 0
    outbox.close()
    with pytest.raises(WeightSyncError, match="given back before"):
        inbox.open(handle)


def test_between_hand_overs_the_memory_is_free(device, make_bucket, same):
    outbox, inbox = CudaIpcOutbox(1 << 12, CPU), CudaIpcInbox()
    inbox.open(elsewhere(outbox.stage(make_bucket(1)).handle))
    outbox.rest()
    inbox.close()
    assert outbox._slots == [None, None]
    assert inbox._opened == {}
    bucket = make_bucket(2)
    assert same(inbox.open(elsewhere(outbox.stage(bucket).handle)).slices, bucket.slices)
    assert device.maps == 2


def test_a_larger_bucket_takes_new_memory(device, make_bucket, same):
    outbox, inbox = CudaIpcOutbox(1 << 12, CPU), CudaIpcInbox()
    for scale in (1, 1000, 1, 1):
        bucket = make_bucket(scale, scale=scale)
        assert same(inbox.open(elsewhere(outbox.stage(bucket).handle)).slices, bucket.slices)
    assert len(device.shared) == 2
    assert device.shared[1].numel() > 1 << 12


def test_a_gpu_that_this_process_does_not_see_is_named():
    with pytest.raises(WeightSyncError, match=r"GPU-1234.*CUDA_VISIBLE_DEVICES"):
        cuda_ipc.map_shared({"device": "GPU-1234"})


def test_the_torch_functions_behind_it_are_there():
    """Both are torch's own ways to share a storage, without a leading name of their own in its documentation."""
    assert callable(torch.UntypedStorage._share_cuda_)
    assert callable(torch.UntypedStorage._new_shared_cuda)


def test_bytes_travel_as_text():
    raw = bytes(range(256))
    assert cuda_ipc._raw(json.loads(json.dumps(cuda_ipc._text(raw)))) == raw


def test_where_tensors_are_staged_follows_the_device():
    assert isinstance(local_outbox(CPU, 1), SharedMemoryOutbox)
    assert isinstance(local_outbox(torch.device("cuda:0"), 1), CudaIpcOutbox)


def test_a_local_inbox_opens_what_comes(device, make_bucket, same):
    inbox = LocalInbox()
    for outbox in (CudaIpcOutbox(1 << 12, CPU), SharedMemoryOutbox(1 << 12)):
        bucket = make_bucket(5)
        assert same(inbox.open(outbox.stage(bucket).handle).slices, bucket.slices)
        outbox.close()
    inbox.close()
    group = b'{"kind":"process_group","at":{},"bytes":0,"index":0,"slices":[]}'
    with pytest.raises(WeightSyncError, match="'process_group'"):
        inbox.open(group)
