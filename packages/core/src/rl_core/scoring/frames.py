"""What a pool and its workers say to each other: frames of length, kind and bytes on a socket.

Pickle goes one way, from the pool to its workers; answers are JSON, so that nothing a reward function returns can run
code, or take long, in the controller.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import BinaryIO, Final

HEADER: Final = struct.Struct("<IB")
JOB: Final = struct.Struct("<QII")
"""Number of the job, key of its function, number of rows (0: one row by itself, not a batch)."""
NUMBER: Final = struct.Struct("<Q")

MAX_ANSWER_BYTES: Final = 4 << 20
"""A larger answer is no score but an accident."""


class Kind(IntEnum):
    """First byte of a frame."""

    HELLO = 1
    """Pool to worker: pickled import path, memory limit, deadline."""
    FUNCTION = 2
    """Pool to worker: key, pickled function."""
    CALL = 3
    """Pool to worker: ``JOB``, pickled arguments."""
    READY = 4
    """Worker to pool: it listens."""
    LOADED = 5
    """Worker to pool: a function is there, or has failed to load; the clock of the first call starts."""
    ACCEPTED = 6
    """Worker to pool: the call is a coroutine and runs; the next one may come."""
    ANSWER = 7
    """Worker to pool: number of the job, JSON of its results."""


_KINDS: Final = frozenset(int(kind) for kind in Kind)


def frame(kind: Kind, payload: bytes = b"") -> bytes:
    """One frame."""
    return HEADER.pack(len(payload), kind) + payload


def read_frame(stream: BinaryIO) -> tuple[int, bytes] | None:
    """The next frame; None at the end of the stream."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    length, kind = HEADER.unpack(header)
    payload = stream.read(length)
    return None if len(payload) < length else (kind, payload)


class Unreadable(Exception):
    """The other side did not send frames."""


class FrameBuffer:
    """Bytes as they come, frames as they are complete."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Kind, bytes]]:
        """The frames that ``data`` completes.

        Raises:
            Unreadable: a frame is of no known kind, or longer than an answer may be.
        """
        self._bytes += data
        start = 0
        while len(self._bytes) - start >= HEADER.size:
            length, number = HEADER.unpack_from(self._bytes, start)
            if length > MAX_ANSWER_BYTES + NUMBER.size or number not in _KINDS:
                msg = f"a frame of kind {number} with {length} bytes"
                raise Unreadable(msg)
            end = start + HEADER.size + length
            if len(self._bytes) < end:
                break
            yield Kind(number), bytes(self._bytes[start + HEADER.size : end])
            start = end
        del self._bytes[:start]
