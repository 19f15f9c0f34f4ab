"""One worker process as the pool sees it: started, spoken to without ever waiting, killed with everything it has started."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from rl_core.contracts.reward import RewardResult
from rl_core.scoring.frames import JOB, NUMBER, FrameBuffer, Kind, frame
from rl_core.scoring.guard import MARK, kill_marked

MAX_PRINTED_BYTES = 1 << 20
"""Nobody reads more of what one call prints."""
_SHOWN_BYTES = 1 << 14
"""So much of what one call prints is passed on."""
_START = "import sys; from rl_core.scoring.worker import main; main(int(sys.argv[1]))"
_LAST_MOMENT_S = 0.2
_READ_BYTES = 1 << 18


@dataclass(slots=True, eq=False)
class Job:
    """One call of a reward function.

    Attributes:
        number: names it.
        function: key of the pool's function.
        arguments: pickled.
        num_rows: rows of a call for many; 0 for a row by itself.
        future: gets one result a row.
        is_alone: it was there when a process died, so it is called again with no other beside it.
        is_out: a process has it.
        started: when its clock started; None before.
    """

    number: int
    function: int
    arguments: bytes
    num_rows: int
    future: Future[list[RewardResult]] = field(default_factory=Future)
    is_alone: bool = False
    is_out: bool = False
    started: float | None = None


class WorkerProcess:
    """A process with its calls.

    ``line`` holds what it works through one after the other, its head is what it is at; ``flying`` the coroutines that run in
    it at once.
    """

    def __init__(self, name: str, memory_mb: int | None, timeout_s: float) -> None:
        """Start the process.

        Args:
            name: value of its mark.
            memory_mb: what it may take.
            timeout_s: deadline of a coroutine.
        """
        self.name = name
        self.line: deque[Job] = deque()
        self.flying: dict[int, Job] = {}
        self.functions: set[int] = set()
        self.loading: set[int] = set()
        self.is_ready = False
        self.since = time.monotonic()
        self.printed = 0
        self.last_words = b""
        self.is_dead = False
        self.is_closed = False
        ours, theirs = socket.socketpair()
        self.connection = ours
        reads, writes = os.pipe()
        self.output = reads
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-c", _START, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=writes,
                    stderr=writes,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env={"OMP_NUM_THREADS": "1", **os.environ, MARK: name, "PYTHONUNBUFFERED": "1"},
                )
            finally:
                os.close(writes)
        ours.setblocking(False)
        os.set_blocking(reads, False)
        self._buffer = FrameBuffer()
        self._unsent = bytearray(frame(Kind.HELLO, pickle.dumps((sys.path, memory_mb, timeout_s))))

    @property
    def load(self) -> int:
        """Calls that it has."""
        return len(self.line) + len(self.flying)

    @property
    def is_exclusive(self) -> bool:
        """It has a call that must have no other beside it."""
        return any(job.is_alone for job in (*self.line, *self.flying.values()))

    @property
    def has_unsent(self) -> bool:
        """Bytes wait for the process to read."""
        return bool(self._unsent)

    def send(self, job: Job, function: bytes) -> None:
        """Hand a call over, to be sent with the next ``flush``; ``function`` is its pickled function, sent once."""
        if job.function not in self.functions:
            self.functions.add(job.function)
            self.loading.add(job.function)
            self._unsent += frame(Kind.FUNCTION, NUMBER.pack(job.function) + function)
        if not self.line:
            self.since = time.monotonic()
            job.started = self.since
        self.line.append(job)
        self._unsent += frame(Kind.CALL, JOB.pack(job.number, job.function, job.num_rows) + job.arguments)

    def accepted(self, number: int) -> None:
        """The head of the line flies."""
        self.flying[number] = self._take_head(number)

    def loaded(self, key: int) -> None:
        """A function is there; what is called first begins now."""
        self.loading.discard(key)
        self._start_head()

    def answered(self, number: int) -> Job:
        """The call that an answer belongs to."""
        self.printed = 0
        job = self.flying.pop(number, None)
        return job if job is not None else self._take_head(number)

    def _take_head(self, number: int) -> Job:
        if not self.line or self.line[0].number != number:
            msg = f"an answer to call {number}, which was not asked"
            raise ValueError(msg)
        job = self.line.popleft()
        self._start_head()
        return job

    def _start_head(self) -> None:
        self.since = time.monotonic()
        if self.line:
            self.line[0].started = self.since

    def flush(self) -> None:
        """Send what the process is ready to take."""
        try:
            while self._unsent:
                del self._unsent[: self.connection.send(self._unsent[:_READ_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # it is gone, which the other direction tells

    def receive(self) -> Iterator[tuple[Kind, bytes]]:
        """Frames that have come.

        Raises:
            EOFError: the process has closed its end.
            Unreadable: it sent something else.
        """
        try:
            data = self.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise EOFError from error
        if not data:
            self.is_closed = True
            raise EOFError
        yield from self._buffer.feed(data)

    def read_output(self) -> bytes | None:
        """What it printed, as far as it is to be shown; counts all of it. None when nothing can come any more."""
        try:
            data = os.read(self.output, _READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            return None
        shown = data[: max(_SHOWN_BYTES - self.printed, 0)]
        self.printed += len(data)
        self.last_words = (self.last_words + data)[-1000:]
        return shown

    def kill(self) -> str:
        """End it and everything it has started; how it had ended, if it had."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # A socket closes a moment before its process can be asked how it ended.
            self.process.wait(_LAST_MOMENT_S if self.is_closed else 0)
        ended = self.process.poll()
        # The group in one go, so that nothing it forks meanwhile gets away; then whatever has left the group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        kill_marked(self.name)
        self.connection.close()
        os.close(self.output)
        if ended is None:
            return "it was killed"
        return f"exit status {ended}" if ended >= 0 else f"signal {signal.Signals(-ended).name}"


def session_sizes() -> dict[int, tuple[int, int]]:
    """Session -> number of its processes, and their resident memory in bytes. Empty where there is no ``/proc``."""
    sizes: dict[int, tuple[int, int]] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # gone meanwhile
        session, resident = int(fields[3]), int(fields[21]) * page
        count, total = sizes.get(session, (0, 0))
        sizes[session] = (count + 1, total + resident)
    return sizes
