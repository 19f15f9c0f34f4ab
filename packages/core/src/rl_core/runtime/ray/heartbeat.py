"""Heartbeats of workers: a thread in each of them, and one board that the driver reads."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_core.runtime.ray.activity import Activity, Beat

_MOST_LOG_CHARACTERS = 16 << 20
"""Of each worker's output the board keeps at most this much until the driver takes it."""

LAST_BEAT_S = 5.0
"""Seconds that the last beat gets to arrive; what was printed is not worth more of a run that ends."""


class Pulse:
    """Sends a worker's beats to the board until it is stopped or the process ends."""

    def __init__(self, worker: str, board: Any, activity: Activity, interval_s: float) -> None:
        """Nothing is sent before ``start``.

        Args:
            worker: name of the worker.
            board: handle of the ``Board`` actor.
            activity: what the worker is doing.
            interval_s: seconds between beats.
        """
        self._worker = worker
        self._board = board
        self._activity = activity
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> Any:
        """Send what was printed last, and end; Ray's reference of that beat, ready once the board has it."""
        self._stopped.set()
        self._thread.join()
        return self._send(is_last=True)

    def _run(self) -> None:
        self._send()
        while not self._stopped.wait(self._interval_s):
            self._send()

    def _send(self, *, is_last: bool = False) -> Any:
        return self._board.beat.remote(self._worker, self._activity.beat(is_last=is_last))


@dataclass(frozen=True, slots=True)
class Sign:
    """The newest beat of a worker, as the driver sees it.

    Attributes:
        beat: its content.
        age_s: seconds since it came.
    """

    beat: Beat
    age_s: float


class Board:
    """Ray actor with the newest beat of every worker of a run."""

    def __init__(self) -> None:
        """Nobody has sent a beat."""
        self._beats: dict[str, tuple[Beat, float]] = {}
        self._logs: dict[str, str] = {}

    def beat(self, worker: str, beat: Beat) -> None:
        """Take a beat."""
        self._beats[worker] = (replace(beat, log=""), time.monotonic())
        if beat.log:
            log = self._logs.get(worker, "") + beat.log
            too_many = len(log) - _MOST_LOG_CHARACTERS
            self._logs[worker] = log if too_many <= 0 else f"[{too_many} characters left out]\n{log[too_many:]}"

    def read(self) -> tuple[dict[str, Sign], dict[str, str]]:
        """The newest beat of each worker, and what each has printed since the last reading."""
        now = time.monotonic()
        logs, self._logs = self._logs, {}
        return {worker: Sign(beat, now - came) for worker, (beat, came) in self._beats.items()}, logs
