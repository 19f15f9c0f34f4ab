from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rl_core.contracts.weights import WeightBucket, WeightSlice
from rl_core.errors import WeightSyncError
from rl_resharding.shared_memory import SharedMemoryInbox, SharedMemoryOutbox
from rl_resharding.transport import StagedBucket

pytestmark = pytest.mark.heavy

BUCKET = 1 << 12


@pytest.fixture
def outbox():
    box = SharedMemoryOutbox(BUCKET)
    yield box
    box.close()


def open_files() -> set[str]:
    """What this process has open of ours."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue
        if "rl-resharding" in target:
            found.add(f"{entry.name}: {target}")
    return found


def mapped() -> int:
    return sum("rl-resharding" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_another_process_reads_what_was_staged(outbox, receiver, make_bucket, same):
    for seed in range(5):
        bucket = make_bucket(seed)
        staged = outbox.stage(bucket)
        assert isinstance(staged, StagedBucket)
        assert staged.index == bucket.index
        assert same(staged.slices, bucket.slices)
        assert same(receiver.open(staged.handle), bucket.slices)


def test_one_bucket_is_read_while_the_next_is_staged(outbox, receiver, make_bucket, same):
    first, second = make_bucket(1), make_bucket(2)
    earlier = outbox.stage(first)
    later = outbox.stage(second)
    assert same(receiver.open(earlier.handle), first.slices)
    assert same(receiver.open(later.handle), second.slices)


def test_buffers_are_used_again(outbox, make_bucket):
    with SharedInbox() as inbox:
        addresses = []
        for seed in range(6):
            opened = inbox.open(outbox.stage(make_bucket(seed)).handle)
            addresses.append(opened.slices[0].tensor.data_ptr())
    assert addresses[0::2] == addresses[:1] * 3
    assert addresses[1::2] == addresses[1:2] * 3
    assert addresses[0] != addresses[1]


class SharedInbox(SharedMemoryInbox):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def test_a_tensor_larger_than_a_bucket_makes_the_buffer_grow(outbox, receiver, make_bucket, same):
    for scale in (1, 1, 1000, 1, 2000, 1000):
        bucket = make_bucket(scale, scale=scale)
        assert same(receiver.open(outbox.stage(bucket).handle), bucket.slices)


def test_what_a_receiver_writes_stays_its_own(outbox, receiver, make_bucket, same):
    bucket = make_bucket(1)
    staged = outbox.stage(bucket)
    with SharedInbox() as inbox:
        inbox.open(staged.handle).slices[0].tensor.fill_(3.0)
        assert same(receiver.open(staged.handle), bucket.slices)


def test_nothing_stays_open_or_mapped_after_close(make_bucket):
    gc.collect()
    before, maps = open_files(), mapped()
    box, inbox = SharedMemoryOutbox(BUCKET), SharedMemoryInbox()
    for seed in range(4):
        inbox.open(box.stage(make_bucket(seed, scale=1 + seed)).handle)
    assert open_files() != before
    box.close()
    box.close()
    inbox.close()
    gc.collect()
    assert open_files() == before
    assert mapped() == maps


def test_a_forgotten_outbox_gives_its_memory_back(make_bucket):
    gc.collect()
    before = open_files()
    SharedMemoryOutbox(BUCKET).stage(make_bucket())
    gc.collect()
    assert open_files() == before


def test_a_sender_that_is_killed_leaves_nothing_behind(receiver, make_bucket):
    """What was mapped stays readable for who mapped it, and what was not yet opened is an error that says so."""
    code = (
        "import sys, torch\n"
        "from rl_core.contracts.weights import WeightBucket, WeightSlice\n"
        "from rl_resharding.shared_memory import SharedMemoryOutbox\n"
        "box = SharedMemoryOutbox(4096)\n"
        "for value in (1.0, 2.0):\n"
        "    staged = box.stage(WeightBucket((WeightSlice('w', torch.full((4,), value)),)))\n"
        "    sys.stdout.write(staged.handle.decode() + '\\n'); sys.stdout.flush()\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    first, second = process.stdout.readline(), process.stdout.readline()
    with SharedInbox() as inbox:
        opened = inbox.open(first)
        process.kill()
        process.wait(30)
        process.stdin.close()
        process.stdout.close()
        assert opened.slices[0].tensor.tolist() == [1.0] * 4
        with pytest.raises(WeightSyncError, match="its sender has ended"):
            inbox.open(second)
        with pytest.raises(WeightSyncError, match="its sender has ended"):
            receiver.open(second)
    assert not [name for name in os.listdir("/dev/shm") if "rl-resharding" in name]


def test_a_receiver_that_is_killed_costs_the_sender_nothing(outbox, new_receiver, receiver, make_bucket, same):
    doomed = new_receiver().wait_until_ready()
    doomed.open(outbox.stage(make_bucket(1)).handle)
    doomed.process.kill()
    doomed.process.wait(30)
    bucket = make_bucket(2)
    assert same(receiver.open(outbox.stage(bucket).handle), bucket.slices)


def test_without_anonymous_files_there_are_temporary_ones(monkeypatch, tmp_path, receiver, make_bucket, same):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    box = SharedMemoryOutbox(BUCKET)
    for seed in range(3):
        bucket = make_bucket(seed)
        assert same(receiver.open(box.stage(bucket).handle), bucket.slices)
    assert len(list(tmp_path.iterdir())) == 2
    box.close()
    assert list(tmp_path.iterdir()) == []


def test_memory_that_is_smaller_than_it_was_said_is_refused(outbox, make_bucket, changed_handle):
    import json

    handle = outbox.stage(make_bucket()).handle
    at = {**json.loads(handle)["at"], "size": 1 << 20}
    with pytest.raises(WeightSyncError, match="smaller"), SharedInbox() as inbox:
        inbox.open(changed_handle(handle, at=at))


def test_buckets_of_another_transport_are_refused(outbox, make_bucket, changed_handle):
    handle = changed_handle(outbox.stage(make_bucket()).handle, kind="pigeon")
    with pytest.raises(WeightSyncError, match="'pigeon'"), SharedInbox() as inbox:
        inbox.open(handle)


def test_an_empty_bucket_travels(outbox, receiver):
    assert receiver.open(outbox.stage(WeightBucket(())).handle) == ()
    bucket = WeightBucket((WeightSlice("nothing", torch.empty(0)),))
    assert receiver.open(outbox.stage(bucket).handle)[0].tensor.shape == (0,)
