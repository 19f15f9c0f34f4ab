"""Beside a pool's processes: ends them all when the process that owns the pool is gone, however it ended.

Run as a script, with the standard library alone. It holds one end of a pipe; when the other end closes, every process whose
environment carries the pool's mark is killed, whatever session or group it has moved to.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "RL_REWARD_WORKER"
"""Environment variable of everything that a worker starts; its value begins with the pool's name."""

_ROUNDS = 100
_PAUSE_S = 0.02


def marked(name: str) -> Iterator[int]:
    """Processes, other than this one, whose mark begins with ``name``."""
    wanted = f"{MARK}={name}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone meanwhile, or another user's
        if int(folder.name) != os.getpid() and any(variable.startswith(wanted) for variable in variables):
            yield int(folder.name)


def kill_marked(name: str) -> int:
    """Kill until none is found; how many were."""
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        found = list(marked(name))
        if not found:
            break
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        killed.update(found)
        time.sleep(_PAUSE_S)
    return len(killed)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    kill_marked(sys.argv[1])
