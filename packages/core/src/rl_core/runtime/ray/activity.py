"""What a worker's process is doing right now: its call, where its code stands, and what it has printed."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_core.single_controller.base.progress import Progress

_INVOKE = ("single_controller/base/call.py", "invoke")
"""File and function that call a worker's method."""
_FRAMES = 12
"""Innermost frames that a heartbeat carries."""
_MOST_LOG_BYTES = 256 * 1024
"""Of each stream a heartbeat carries at most this much; the rest follows with the next ones."""

LogFile = tuple[str, int]
"""A file that a process prints into, and the byte up to which it has been read."""


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat.

    Attributes:
        call: method that runs; None between calls.
        place: step and phase of the run in which it was called, as text.
        since_s: for how long it runs.
        stack: innermost frames of the thread that runs it, the innermost last.
        log: what the process printed since the beat before, in whole lines: what it wrote to stdout, then to stderr.
        files: the files behind that, read up to where ``log`` ends.
    """

    call: str | None
    place: str
    since_s: float
    stack: str
    log: str
    files: tuple[LogFile, ...] = ()


class Activity:
    """Says what the thread that runs the calls is at; read by the heartbeat's thread."""

    def __init__(self) -> None:
        """Nothing runs yet; what is printed from here on is ours."""
        self._call: tuple[str, str, float, int] | None = None
        self._tails = [tail for tail in map(_tail, (1, 2)) if tail is not None]

    @property
    def files(self) -> tuple[LogFile, ...]:
        """Where the process prints, and up to where that was read."""
        return tuple((tail.path, tail.offset) for tail in self._tails)

    @contextmanager
    def doing(self, method: str, place: Progress | None) -> Iterator[None]:
        """Mark the calling thread as busy with ``method``."""
        outer = self._call
        self._call = (method, str(place or ""), time.monotonic(), threading.get_ident())
        try:
            yield
        finally:
            self._call = outer
            sys.stdout.flush()
            sys.stderr.flush()

    def beat(self, *, is_last: bool = False) -> Beat:
        """What is going on; the last beat also carries a line that has not ended."""
        log = "".join(tail.new_text(unfinished=is_last) for tail in self._tails)
        call = self._call
        if call is None:
            return Beat(None, "", 0.0, "", log, self.files)
        method, place, started, thread = call
        frame = sys._current_frames().get(thread)
        frames = [] if frame is None else _own_frames(traceback.extract_stack(frame))[-_FRAMES:]
        stack = "".join(traceback.StackSummary.from_list(frames).format()).rstrip("\n")
        return Beat(method, place, time.monotonic() - started, stack, log, self.files)


def _own_frames(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Those of the worker's method: without what brought the call there."""
    file, function = _INVOKE
    above = [index for index, frame in enumerate(frames) if frame.name == function and frame.filename.endswith(file)]
    return frames[above[-1] + 1 :] if above else frames


class _Tail:
    """New text of a file that grows."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = os.path.getsize(path)

    def new_text(self, *, unfinished: bool) -> str:
        """Whole lines that were not given yet; with ``unfinished`` everything."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read(-1 if unfinished else _MOST_LOG_BYTES)
        if not unfinished:
            ends = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            data = data[: ends if ends or len(data) < _MOST_LOG_BYTES else len(data)]
        self.offset += len(data)
        text = data.decode("utf-8", errors="replace")
        return text + "\n" if unfinished and text and not text.endswith("\n") else text


def _tail(descriptor: int) -> _Tail | None:
    """The file behind a descriptor of this process; None if it is a terminal, a pipe or the like."""
    path = os.path.realpath(f"/dev/fd/{descriptor}")
    return _Tail(path) if os.path.isfile(path) else None
