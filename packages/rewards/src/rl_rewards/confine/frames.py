"""Messages over a pipe: each a list of byte strings."""

from __future__ import annotations

import os
import select
import struct
import time

_NUMBER = struct.Struct("<Q")


class PeerGoneError(Exception):
    """The other side has closed its end."""


def send(fd: int, *parts: bytes) -> None:
    """Write one message.

    Raises:
        BrokenPipeError: nobody reads.
    """
    head = b"".join(_NUMBER.pack(number) for number in (len(parts), *map(len, parts)))
    for part in (head, *parts):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(fd, rest) :]


def receive(fd: int, timeout_s: float) -> list[bytes]:
    """Read one message.

    Args:
        fd: a pipe.
        timeout_s: for the whole message.

    Raises:
        PeerGoneError: the other side closed.
        TimeoutError: no whole message in time.
    """
    end = time.monotonic() + timeout_s
    lengths = [_number(fd, end) for _ in range(_number(fd, end))]
    return [_read(fd, length, end) for length in lengths]


def _number(fd: int, end: float) -> int:
    return int(_NUMBER.unpack(_read(fd, _NUMBER.size, end))[0])


def _read(fd: int, length: int, end: float) -> bytes:
    parts = []
    poll = select.poll()  # unlike select.select, works for descriptors above 1023
    poll.register(fd, select.POLLIN)
    while length:
        if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
            msg = "no message in time"
            raise TimeoutError(msg)
        part = os.read(fd, min(length, 1 << 20))
        if not part:
            msg = "the other side closed its end"
            raise PeerGoneError(msg)
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
