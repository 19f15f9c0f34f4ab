"""A batch as buffers, and through a pipe between processes."""

from __future__ import annotations

import multiprocessing
import pickle

import numpy as np
import pytest
import torch
from rl_dataproto import DataProto, WireError, from_frames, jagged_from_rows, recv, send, to_frames


def large():
    return DataProto.from_dict(
        {"x": torch.arange(300_000).reshape(300, 1000), "j": jagged_from_rows([torch.arange(n) for n in range(300)])},
        {"uid": [f"u{n}" for n in range(300)]},
        {"k": 1},
    )


def test_frames_are_the_memory_of_the_columns(make_mixed):
    data = large()
    frames = to_frames([data, make_mixed(6)])
    assert any(np.frombuffer(frame, np.uint8).ctypes.data == data.batch["x"].data_ptr() for frame in frames[1:])
    back, mixed = from_frames([bytes(frame) for frame in frames])
    assert back.equals(data)
    assert mixed.equals(make_mixed(6))
    with pytest.raises(WireError, match="no frame"):
        from_frames([])


def _echo(here, there):
    here.close()
    while True:
        try:
            data = recv(there)
        except EOFError:
            return
        send(there, data)


@pytest.mark.heavy
def test_a_pipe_between_processes():
    # A forked child needs no import of this file, which pytest does not put on the path.
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_echo, args=(here, there), daemon=True)
    process.start()
    there.close()
    for data in (large(), DataProto(), large()[:0]):
        send(here, data)
        back = recv(here)
        assert back.equals(data)
    send(here, large())
    back = recv(here)
    back.batch["x"][0] = 7
    assert back.batch["x"][0].eq(7).all()
    here.close()
    process.join(timeout=30)
    assert process.exitcode == 0


def test_a_pipe_that_closes_in_the_middle():
    here, there = multiprocessing.Pipe()
    there.send_bytes(pickle.dumps((b"", [1000])))
    there.close()
    with pytest.raises(WireError, match="1000 bytes before the end of column 0"):
        recv(here)
