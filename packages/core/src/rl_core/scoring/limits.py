"""What a worker process may take, as far as the kernel can hold it to that. The rest is watched by the pool."""

from __future__ import annotations

import resource
import sys

from rl_core.errors import RlError


def limit_core() -> None:
    """A crash leaves no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def limit_memory(limit_mb: int | None) -> None:
    """Let this process take ``limit_mb`` MiB more than it has now; beyond it, allocations raise ``MemoryError``.

    Only Linux counts private memory against ``RLIMIT_DATA``; elsewhere the pool's watch alone holds the limit.
    """
    if limit_mb is None or not sys.platform.startswith("linux"):
        return
    soft = _data_bytes() + (limit_mb << 20)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _data_bytes() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    msg = "/proc/self/status has no VmData; is /proc mounted?"
    raise RlError(msg)
