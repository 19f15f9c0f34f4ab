"""Limits of a run, and how a run ended."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from rl_rewards.sandbox.errors import SandboxError

Status = Literal["ok", "error", "timeout", "memory", "output_limit", "killed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one run may use.

    Raises:
        SandboxError: one is not a positive number.
    """

    wall_s: float = 10.0
    """Seconds from start to end, after which every process of the run is killed."""
    cpu_s: float = 10.0
    """Processor seconds of each process; rounded up to whole ones."""
    memory_mb: int = 1024
    """Address space of each process, and memory of all together (looked at 30 times a second)."""
    file_mb: int = 32
    """Size of one file."""
    scratch_mb: int = 64
    """Size of the scratch folder, which lies in memory, and is not part of ``memory_mb``."""
    processes: int = 32
    """Processes and threads at a time."""
    open_files: int = 64
    """Open files of each process."""
    output_kb: int = 1024
    """Of stdout and of stderr each; who writes more is killed."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                msg = f"limit {field.name} of the sandbox is {value!r}; it must be a positive number"
                raise SandboxError(msg)


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """How a run ended.

    Attributes:
        status: ``ok``: ended by itself with exit code 0. ``error``: with another one (an exception, say). ``timeout``: cut by
            ``wall_s`` or ``cpu_s``. ``memory``: cut by ``memory_mb``, or ended by a ``MemoryError``. ``output_limit``: cut for
            writing too much. ``killed``: ended by a signal, or took its supervisor along.
        stdout, stderr: what it wrote, up to the limit; bytes that are no UTF-8 are replaced.
        exit_code: None when a signal ended it.
        signal: the signal that ended it.
        seconds: from start to end.
        cpu_seconds: of all processes of the run.
        memory_mb: the most memory seen.
    """

    status: Status
    stdout: str
    stderr: str
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_mb: float = 0.0
