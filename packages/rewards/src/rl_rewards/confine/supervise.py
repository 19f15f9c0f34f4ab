"""Runs a program to its end, whatever the program does about it.

The supervisor is the first process of its process namespace: when it ends, the kernel ends all others there. It is trusted
code, holds no secret, and a confined process can send it no signal and not read its memory.
"""

from __future__ import annotations

import os
import resource
import select
import time

from rl_rewards.confine.drop import Bounds, Program, become
from rl_rewards.confine.kernel import SIGKILL, SIGXCPU
from rl_rewards.confine.processes import ProcessTree

SAMPLE_S = 0.03
"""Seconds between two looks at the memory of a run."""


class StartError(Exception):
    """The program could not be started: the sandbox is at fault, not the response."""


class Outcome:
    """How a run ended; the fields of ``rl_rewards.sandbox.SandboxResult``."""

    def __init__(self, status: str) -> None:
        """An end of which nothing more is known yet."""
        self.status = status
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.memory_mb = 0.0


class _Output:
    """What comes out of one pipe, up to a limit."""

    def __init__(self, fd: int, limit: int) -> None:
        self.fd = fd
        self.data = bytearray()
        self.is_open = True
        self._limit = limit

    def read(self) -> bool:
        """Take what is there; False when it was too much."""
        part = os.read(self.fd, 1 << 16)
        self.is_open = bool(part)
        left = self._limit - len(self.data)
        self.data += part[:left]
        return len(part) <= left

    def finish(self) -> bool:
        """Take the rest, when nobody writes any more; False when it was too much."""
        fits = True
        while self.is_open:
            fits = self.read() and fits
        os.close(self.fd)
        return fits


def run(
    program: Program, bounds: Bounds, stdin: bytes, wall_s: float, output_bytes: int, watched: int, tree: ProcessTree
) -> tuple[Outcome, bytes, bytes]:
    """Run it once.

    Args:
        program: what to execute.
        bounds: limits that the kernel keeps.
        stdin: what it can read.
        wall_s: seconds after which it is killed.
        output_bytes: of stdout and of stderr each; one that writes more is killed.
        watched: descriptor of whoever asked; when that side is gone, the run is killed.
        tree: the processes of this run.

    Returns:
        How it ended, its stdout and its stderr.

    Raises:
        StartError: the program could not be started.
    """
    begin = time.monotonic()
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
    given = _file_of(stdin)
    child = _spawn(program, bounds, given, out_write, err_write)
    for fd in (given, out_write, err_write):
        os.close(fd)
    outputs = [_Output(out_read, output_bytes), _Output(err_read, output_bytes)]
    try:
        verdict, peak_mb = _watch(child, outputs, begin + wall_s, watched, bounds.memory_mb, tree)
    finally:
        tree.kill()
    _, code, usage = os.wait4(child, 0)
    tree.reap()
    for output in outputs:
        if not output.finish():
            verdict = verdict or "output_limit"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome = Outcome(verdict or "ok")
    outcome.seconds = time.monotonic() - begin
    outcome.cpu_seconds = after.ru_utime + after.ru_stime - spent.ru_utime - spent.ru_stime
    outcome.memory_mb = max(peak_mb, usage.ru_maxrss / 1024)
    _judge(outcome, code, usage.ru_utime + usage.ru_stime, bounds, bytes(outputs[1].data))
    return outcome, bytes(outputs[0].data), bytes(outputs[1].data)


def _judge(outcome: Outcome, code: int, cpu_s: float, bounds: Bounds, stderr: bytes) -> None:
    if os.WIFEXITED(code):
        outcome.exit_code = os.WEXITSTATUS(code)
    else:
        outcome.signal = os.WTERMSIG(code)
    if outcome.status != "ok" or outcome.exit_code == 0:
        return
    if outcome.signal in (SIGXCPU, SIGKILL) and cpu_s > bounds.cpu_s - 0.2:
        outcome.status = "timeout"
    elif outcome.signal is not None:
        outcome.status = "killed"
    else:
        last_line = stderr.rstrip().rpartition(b"\n")[2]
        outcome.status = "memory" if last_line.startswith(b"MemoryError") else "error"


def _spawn(program: Program, bounds: Bounds, stdin: int, stdout: int, stderr: int) -> int:
    failure_read, failure_write = os.pipe()
    child = os.fork()
    if child == 0:
        become(program, bounds, stdin, stdout, stderr, failure_write)
    os.close(failure_write)
    failure = os.read(failure_read, 4096)
    os.close(failure_read)
    if failure:
        os.waitpid(child, 0)
        raise StartError(failure.decode(errors="replace"))
    return child


def _file_of(data: bytes) -> int:
    """A descriptor that reads ``data``; a pipe would have to be fed while the outputs are read."""
    fd = os.memfd_create("stdin")
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _watch(
    child: int, outputs: list[_Output], end: float, watched: int, memory_mb: int, tree: ProcessTree
) -> tuple[str, float]:
    """Wait for the end of the run, or for a reason to end it.

    Returns:
        The reason, empty when it ended by itself; and the most memory seen, in megabytes.
    """
    pidfd = os.pidfd_open(child)
    poll = select.poll()
    by_fd = {output.fd: output for output in outputs}
    for fd in (*by_fd, pidfd):
        poll.register(fd, select.POLLIN)
    poll.register(watched, 0)  # only its end
    peak_mb, next_sample = 0.0, time.monotonic() + SAMPLE_S
    try:
        while True:
            now = time.monotonic()
            if now >= end:
                return "timeout", peak_mb
            if now >= next_sample:
                used_mb = tree.memory_mb()
                peak_mb, next_sample = max(peak_mb, used_mb), now + SAMPLE_S
                if used_mb > memory_mb:
                    return "memory", peak_mb
            for fd, _ in poll.poll(max(0.0, min(end, next_sample) - now) * 1000 + 1):
                if fd == watched:
                    return "killed", peak_mb
                if fd == pidfd:
                    return "", peak_mb
                if not by_fd[fd].read():
                    return "output_limit", peak_mb
                if not by_fd[fd].is_open:
                    poll.unregister(fd)
    finally:
        os.close(pidfd)
