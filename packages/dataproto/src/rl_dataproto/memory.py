"""Output buffers for operations that copy whole columns.

A copy of a large column into memory that the process never used before spends most of its time in page faults,
several times what the copying takes. The operations of a training step make results of the same sizes again
and again, so the memory of a large result that was freed is kept for the next one, up to a limit.

``RL_BUFFER_POOL_MB`` sets the limit in MiB a process; 0 keeps nothing. Without it, it is a 64th of the machine's
memory, and at most 1 GiB. :func:`release_buffers` gives everything that is kept back to the system.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

# Smaller results come from memory that the allocator keeps anyway.
_LARGE_BYTES = 4 * 2**20


class BufferPool:
    """Freed memory by size, least recently freed first out.

    Args:
        limit: Bytes to keep at most.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept_bytes = 0
        self._kept: OrderedDict[int, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept now."""
        return self._kept_bytes

    def buffer(self, num_bytes: int) -> np.ndarray:
        """Uninitialised memory, ``[num_bytes]`` ``uint8``; it comes back by itself when nobody refers to it."""
        size = _size_class(num_bytes)
        memory = self._take(size)
        if memory is None:
            memory = torch.empty(size, dtype=torch.uint8).numpy()
        # Not memory[:num_bytes]: numpy lets a view of a view refer to the outermost array, past the one whose death is
        # watched here. Over a memoryview the chain of references stops at this array.
        view = np.frombuffer(memory.data, dtype=np.uint8, count=num_bytes)
        if size <= self._limit:
            weakref.finalize(view, self._give_back, memory).atexit = False
        return view

    def release(self) -> None:
        """Give all kept memory back to the system."""
        with self._lock:
            self._kept.clear()
            self._kept_bytes = 0

    def forget(self) -> None:
        """Start anew, whatever another thread was doing."""
        self._lock = threading.Lock()
        self.release()

    def _take(self, size: int) -> np.ndarray | None:
        with self._lock:
            key = next((key for key, memory in reversed(self._kept.items()) if memory.nbytes == size), None)
            if key is None:
                return None
            self._kept_bytes -= size
            return self._kept.pop(key)

    def _give_back(self, memory: np.ndarray) -> None:
        # Called when a tensor dies, which may be in the middle of a call above in the same thread: then the memory
        # is not kept, where waiting would never end.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._kept[id(memory)] = memory
            self._kept_bytes += memory.nbytes
            while self._kept_bytes > self._limit:
                _, oldest = self._kept.popitem(last=False)
                self._kept_bytes -= oldest.nbytes
        finally:
            self._lock.release()


def _size_class(num_bytes: int) -> int:
    """The next of eight sizes between powers of two, so that results of similar sizes share memory."""
    step = 1 << max(0, num_bytes.bit_length() - 4)
    return -(-num_bytes // step) * step


def _limit_bytes() -> int:
    text = os.environ.get("RL_BUFFER_POOL_MB", "")
    if text:
        return int(float(text) * 2**20)
    return min(2**30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 64)


_pool = BufferPool(_limit_bytes())
# Another thread may hold the lock at the moment of a fork, and the child would wait for it for ever.
os.register_at_fork(after_in_child=_pool.forget)


def release_buffers() -> None:
    """Give the memory that is kept for results back to the system, for example before a phase that needs it all."""
    _pool.release()


def empty_bytes(num_bytes: int) -> np.ndarray:
    """Uninitialised host memory, ``[num_bytes]`` ``uint8``."""
    return _pool.buffer(num_bytes) if num_bytes >= _LARGE_BYTES else np.empty(num_bytes, np.uint8)


def empty_like_rows(column: Tensor, shape: Sequence[int]) -> Tensor:
    """Make an uninitialised contiguous tensor with the dtype and device of a column.

    Args:
        column: Where dtype and device come from.
        shape: Shape of the result.

    Returns:
        A tensor of ``shape``; its content is undefined.
    """
    num_bytes = math.prod(shape) * column.dtype.itemsize
    if column.device.type != "cpu" or num_bytes < _LARGE_BYTES:
        return torch.empty(tuple(shape), dtype=column.dtype, device=column.device)
    return torch.from_numpy(_pool.buffer(num_bytes)).view(column.dtype).view(tuple(shape))


def may_write_out(*columns: Tensor) -> bool:
    """Whether an operation on the columns may write into a prepared buffer.

    ``out=`` is refused by autograd, and a tensor subclass decides itself what its operations return.
    """
    return all(type(column) is Tensor and not column.requires_grad for column in columns)
