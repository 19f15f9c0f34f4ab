import os
import threading

import pytest
from rl_rewards.confine.frames import PeerGoneError, receive, send


def test_messages_arrive_as_they_were_sent():
    read, write = os.pipe()
    parts = [b"", b"a\0b", os.urandom(1 << 20)]
    sender = threading.Thread(target=lambda: [send(write, *parts), send(write, b"x")])
    sender.start()
    assert receive(read, 10) == parts
    assert receive(read, 10) == [b"x"]
    sender.join()
    with pytest.raises(TimeoutError):
        receive(read, 0.05)
    os.write(write, b"half")
    os.close(write)
    with pytest.raises(PeerGoneError):
        receive(read, 1)
    os.close(read)
