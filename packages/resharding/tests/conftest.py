"""Buckets of every number format, and receivers that are other processes."""

from __future__ import annotations

import json
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from rl_core.contracts.weights import WeightBucket, WeightSlice

RECEIVER = """
import pickle, struct, sys
import torch
from rl_resharding.inboxes import LocalInbox
{setup}
torch.set_num_threads(1)
def answer(value):
    data = pickle.dumps(value)
    sys.stdout.buffer.write(struct.pack("<q", len(data)) + data)
    sys.stdout.buffer.flush()
answer("ready")
while head := sys.stdin.buffer.read(8):
    handle = sys.stdin.buffer.read(struct.unpack("<q", head)[0])
    try:
        bucket = inbox.open(handle)
        answer([(part.name, part.region, str(part.tensor.dtype), part.tensor.shape,
                 part.tensor.reshape(-1).view(torch.uint8).numpy().tobytes()) for part in bucket.slices])
    except Exception as error:
        answer(error)
"""


class Receiver:
    """Another process that opens handles and tells what it found."""

    def __init__(self, setup: str = "inbox = LocalInbox()") -> None:
        code = RECEIVER.format(setup=setup)
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_until_ready(self) -> Receiver:
        assert self.answer() == "ready"
        return self

    def ask(self, handle: bytes) -> None:
        self.process.stdin.write(struct.pack("<q", len(handle)) + handle)
        self.process.stdin.flush()

    def answer(self) -> Any:
        (size,) = struct.unpack("<q", self.process.stdout.read(8))
        value = pickle.loads(self.process.stdout.read(size))
        if isinstance(value, Exception):
            raise value
        return value

    def slices(self) -> tuple[WeightSlice, ...]:
        """What the handle that was asked for last has given."""
        return tuple(
            WeightSlice(
                name,
                torch.frombuffer(bytearray(data), dtype=torch.uint8).view(getattr(torch, dtype[6:])).view(shape)
                if data
                else torch.empty(shape, dtype=getattr(torch, dtype[6:])),
                region,
            )
            for name, region, dtype, shape, data in self.answer()
        )

    def open(self, handle: bytes) -> tuple[WeightSlice, ...]:
        self.ask(handle)
        return self.slices()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture(scope="session")
def receiver() -> Iterator[Receiver]:
    """One for all tests that do not end it."""
    found = Receiver().wait_until_ready()
    yield found
    found.close()


@pytest.fixture
def new_receiver() -> Iterator[Callable[..., Receiver]]:
    """Starts receivers that are ended with the test."""
    started: list[Receiver] = []

    def start(*arguments: str) -> Receiver:
        started.append(Receiver(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def make_bucket() -> Callable[..., WeightBucket]:
    """Makes buckets: odd sizes, views that are not contiguous, regions, scalars and nothing."""

    def make(seed: int = 0, *, scale: int = 1) -> WeightBucket:
        draw = torch.Generator().manual_seed(seed)

        def bits(dtype: torch.dtype, *shape: int) -> torch.Tensor:
            size = torch.Size(shape).numel() * dtype.itemsize
            return torch.randint(0, 256, (size,), generator=draw).to(torch.uint8).view(dtype).view(shape)

        slices = (
            WeightSlice("a", bits(torch.float32, 3 * scale, 5)),
            WeightSlice("b", bits(torch.bfloat16, 7, 3).T),
            WeightSlice("c", bits(torch.float16, 2, 5), ((4, 6), (0, 5))),
            WeightSlice("d", bits(torch.int64)),
            WeightSlice("e", bits(torch.int8, 11)),
            WeightSlice("f", torch.empty(0, 4)),
            WeightSlice("g", torch.tensor([True, False, True])),
            WeightSlice("h", bits(torch.float64, 2)),
        )
        return WeightBucket(slices, index=seed)

    return make


@pytest.fixture
def same() -> Callable[[Any, Any], bool]:
    """Whether slices are equal to the bit."""

    def look(first: Any, second: Any) -> bool:
        return len(first) == len(second) and all(
            (one.name, one.region, one.tensor.dtype, one.tensor.shape)
            == (other.name, other.region, other.tensor.dtype, other.tensor.shape)
            and torch.equal(
                one.tensor.contiguous().reshape(-1).view(torch.uint8),
                other.tensor.contiguous().reshape(-1).view(torch.uint8),
            )
            for one, other in zip(first, second, strict=True)
        )

    return look


@pytest.fixture
def changed_handle() -> Callable[..., bytes]:
    """A handle with other fields."""

    def change(handle: bytes, **fields: Any) -> bytes:
        return json.dumps({**json.loads(handle), **fields}).encode()

    return change
