"""A batch as a list of buffers, and over a ``multiprocessing`` connection without further copies.

``multiprocessing`` itself pickles with a protocol that has no out-of-band buffers: a batch put into its queues
arrives whole, but every column is copied into the pickle, into the pipe and out of it. :func:`send` and
:func:`recv` write the columns' own memory into the pipe and read it into its final place.

The first frame is a pickle: use these functions between processes of one run, not with strangers.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from rl_dataproto.errors import WireError
from rl_dataproto.memory import empty_bytes

Frame: TypeAlias = bytes | bytearray | memoryview


def to_frames(data: Any) -> list[Frame]:
    """Split a value into a small pickle and the memory of its columns, which is not copied.

    Args:
        data: A batch, or anything that holds batches.

    Returns:
        The pickle, then one buffer a column, valid as long as the batch is not changed.
    """
    buffers: list[pickle.PickleBuffer] = []
    header = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
    return [header, *(buffer.raw() for buffer in buffers)]


def from_frames(frames: Sequence[Frame]) -> Any:
    """Rebuild a value around its frames, without a copy.

    Args:
        frames: What :func:`to_frames` returned, or copies of it.

    Raises:
        WireError: There is no frame.
    """
    if not frames:
        msg = "A batch was to be built from no frame: give the list that to_frames returned."
        raise WireError(msg)
    return pickle.loads(bytes(frames[0]), buffers=frames[1:])


def send(connection: Connection, data: Any) -> None:
    """Send a value to the process at the other end, which calls :func:`recv`.

    Args:
        connection: One end of a ``multiprocessing.Pipe`` on a POSIX system; nobody else writes to it meanwhile.
        data: A batch, or anything that holds batches.
    """
    header, *buffers = to_frames(data)
    views = [memoryview(buffer).cast("B") for buffer in buffers]
    connection.send_bytes(pickle.dumps((header, [len(view) for view in views])))
    for view in views:
        while len(view):
            view = view[os.write(connection.fileno(), view) :]


def recv(connection: Connection) -> Any:
    """Receive what :func:`send` sent; waits for it.

    Raises:
        EOFError: The other end was closed.
        WireError: The other end was closed in the middle of a column.
    """
    header, sizes = pickle.loads(connection.recv_bytes())
    buffers = []
    for number, size in enumerate(sizes):
        buffer = empty_bytes(size).data
        view = buffer
        while len(view):
            count = os.readv(connection.fileno(), [view])
            if not count:
                msg = f"The sender closed the connection {len(view)} bytes before the end of column {number}."
                raise WireError(msg)
            view = view[count:]
        buffers.append(buffer)
    return from_frames([header, *buffers])
