from __future__ import annotations

import socket
import threading

import pytest
import torch
from rl_core.errors import WeightSyncError
from rl_resharding.process_group import Meeting, ProcessGroupInbox, ProcessGroupOutbox, join

pytestmark = pytest.mark.heavy

CPU = torch.device("cpu")
SETUP = """
from rl_resharding.process_group import Meeting, ProcessGroupInbox, join
meeting = Meeting(host="127.0.0.1", port={port}, world_size={size}, deadline_s={deadline})
inbox = ProcessGroupInbox(join(meeting, {rank}), torch.device("cpu"))
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("num_receivers", [1, 2])
def test_other_processes_receive_every_bucket(new_receiver, make_bucket, same, num_receivers):
    port, size = free_port(), 1 + num_receivers
    receivers = [
        new_receiver(SETUP.format(port=port, size=size, deadline=60, rank=1 + place)) for place in range(num_receivers)
    ]
    group = join(Meeting(host="127.0.0.1", port=port, world_size=size, deadline_s=60), 0)
    outbox = ProcessGroupOutbox(1 << 12, group, CPU)
    for one in receivers:
        one.wait_until_ready()
    waiting = []
    for seed, scale in enumerate((1, 1, 1000, 1)):
        bucket = make_bucket(seed, scale=scale)
        staged = outbox.stage(bucket)
        for one in receivers:
            one.ask(staged.handle)
        waiting.append(bucket)
        if len(waiting) == 2:  # one on its way while the next is staged
            expected = waiting.pop(0)
            assert all(same(one.slices(), expected.slices) for one in receivers)
    assert all(same(one.slices(), waiting[0].slices) for one in receivers)
    outbox.close()


def test_a_receiver_that_never_comes_ends_the_wait():
    meeting = Meeting(host="127.0.0.1", port=free_port(), world_size=2, deadline_s=0.5)
    with pytest.raises(WeightSyncError, match="rank 0 of 2 found no others"):
        join(meeting, 0)


def test_a_receiver_that_is_gone_ends_the_wait(new_receiver, make_bucket):
    port = free_port()
    gone = new_receiver(SETUP.format(port=port, size=2, deadline=5, rank=1))
    group = join(Meeting(host="127.0.0.1", port=port, world_size=2, deadline_s=5), 0)
    gone.wait_until_ready()
    gone.process.kill()
    gone.process.wait(30)
    outbox = ProcessGroupOutbox(1 << 12, group, CPU)
    with pytest.raises(WeightSyncError, match="was not broadcast"):
        for seed in range(3):
            outbox.stage(make_bucket(seed, scale=1000))


def test_torchs_default_group_stays_out_of_it():
    port, found = free_port(), []

    def receive() -> None:
        meeting = Meeting(host="127.0.0.1", port=port, world_size=2, deadline_s=30)
        found.append(ProcessGroupInbox(join(meeting, 1), CPU))

    thread = threading.Thread(target=receive)
    thread.start()
    join(Meeting(host="127.0.0.1", port=port, world_size=2, deadline_s=30), 0)
    thread.join(30)
    assert len(found) == 1
    assert not torch.distributed.is_initialized()
