"""A thread of the driver that reads the workers' heartbeats.

It keeps what they print, tells who waits for whom once a call takes longer than the soft deadline, and finds workers that
are gone or stopped even when nobody waits for them.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rl_core.errors import WorkerError
from rl_core.runtime.ray.failures import LAST_LINES, dead, exit_reason, is_death
from rl_core.runtime.ray.processes import Stretch, read_on_nodes
from rl_core.runtime.ray.waiting import waiting_lines, waiting_report

if TYPE_CHECKING:
    from rl_core.config.trainer import WatchdogConfig
    from rl_core.runtime.ray.health import Member, Pending, RunHealth
    from rl_core.runtime.ray.heartbeat import Sign

_SUSPICIOUS_BEATS = 5
"""So many beats late, a worker is asked whether it lives."""
_READ_DEADLINE_S = 5.0
_KEPT_LINES = 4 * LAST_LINES
"""Of each worker: more than an error shows, because a crash report begins above them."""
_MOST_UNREAD_BYTES = 64 << 20
"""Of a file that a worker left behind, at most this much is read at the end."""


class Watchdog:
    """Watches all workers of a run."""

    def __init__(
        self,
        board: Any,
        health: RunHealth,
        config: WatchdogConfig,
        *,
        log_dir: Path | None,
        out: TextIO | None = None,
    ) -> None:
        """Nothing is watched before ``start``.

        Args:
            board: handle of the ``Board`` actor.
            health: members and pending calls; failures are written down there.
            config: intervals and deadlines.
            log_dir: where each worker's output goes, one file a worker; None keeps only the last lines.
            out: where reports go; None is stderr.
        """
        self._board = board
        self._health = health
        self._config = config
        self._log_dir = log_dir
        self._out = out
        self._late_s = _SUSPICIOUS_BEATS * config.heartbeat_s
        self._signs: dict[str, Sign] = {}
        self._tails: dict[str, deque[str]] = {}
        self._read_to_the_end: set[str] = set()
        self._pings: dict[str, Any] = {}
        self._next_report_s = config.soft_deadline_s
        self._reading = threading.RLock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._log_dir is not None:
            self._log_dir.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """Read the board a last time, and end."""
        self._stopped.set()
        self._thread.join(_READ_DEADLINE_S)
        self._read()

    def last_lines(self, member: Member) -> list[str]:
        """The newest lines that a worker whose process is gone has printed, without secrets."""
        self.read_rest([member])
        return list(self._tails.get(member.name, ()))

    def read_rest(self, members: Sequence[Member]) -> None:
        """Take over what processes that are gone have printed since their last heartbeat."""
        with self._reading:
            self._read()
            stretches: dict[str, list[Stretch]] = defaultdict(list)
            for member in members:
                if member.name in self._read_to_the_end:
                    continue
                self._read_to_the_end.add(member.name)
                sign = self._signs.get(member.name)
                for path, start in sign.beat.files if sign else member.files:
                    stretches[member.node_id].append((member.name, path, start))
            for worker, text in read_on_nodes(stretches, _MOST_UNREAD_BYTES).items():
                self._keep(worker, text)

    def waits(self) -> str:
        """Who waits for whom now, to stand below an error; empty if nobody waits for a worker."""
        with self._reading:
            self._read()
            pending = self._unfinished()
            return self._health.redact("\n".join(waiting_lines(pending, self._signs, late_s=self._late_s)))

    def _run(self) -> None:
        while not self._stopped.wait(self._config.heartbeat_s):
            if not self._read():
                return
            self._find_lost()
            self._report_waits()

    def _read(self) -> bool:
        """Take over beats and output; False when the board is gone, and with it the cluster."""
        import ray  # noqa: PLC0415 - layers above choose a runtime without loading Ray

        with self._reading:
            try:
                signs, logs = ray.get(self._board.read.remote(), timeout=_READ_DEADLINE_S)
            except ray.exceptions.GetTimeoutError:
                return True  # a busy machine; the next reading gets all
            except (ray.exceptions.RayError, RuntimeError) as error:
                if not self._stopped.is_set():
                    msg = f"the heartbeat board of the run is gone, and its node with it: {exit_reason(error)}"
                    self._health.fail(WorkerError(self._health.redact(msg)))
                return False
            self._signs = signs
            for worker, text in logs.items():
                # What comes late from a process that is gone has been read from its files.
                if worker not in self._read_to_the_end:
                    self._keep(worker, text)
            return True

    def _keep(self, worker: str, text: str) -> None:
        shown = self._health.redact(text)
        tail = self._tails.setdefault(worker, deque(maxlen=_KEPT_LINES))
        tail.extend(line for line in shown.splitlines() if line.strip())
        if self._log_dir is not None:
            with (self._log_dir / f"{worker.replace('/', '-rank')}.log").open("a", encoding="utf-8") as file:
                file.write(shown)

    def _find_lost(self) -> None:
        for member in self._health.members():
            sign = self._signs.get(member.name)
            if sign is None or sign.age_s < self._late_s:
                self._pings.pop(member.name, None)
                continue
            if reason := self._death(member):
                doing = self._call_on(member)
                self._health.fail(dead(doing, reason, self.last_lines(member)))
            elif sign.age_s >= self._config.silence_s:
                self._health.fail(WorkerError(self._health.redact(silent_text(self._call_on(member), sign))))

    def _call_on(self, member: Member) -> str:
        """The oldest call that waits for ``member``, with the member; or that there is none."""
        calls = [call for _, call in self._health.pending() if call.member.name == member.name]
        return str(calls[0]) if calls else f"between two calls on {member}"

    def _death(self, member: Member) -> str | None:
        """Ray's reason, if the member's process is gone; None if it lives, or is busy or stopped."""
        import ray  # noqa: PLC0415 - as above

        ping = self._pings.setdefault(member.name, member.handle.ping.remote())
        ready, _ = ray.wait([ping], timeout=0.2)
        if not ready:
            return None
        del self._pings[member.name]
        try:
            ray.get(ping)
        except ray.exceptions.RayError as error:
            return exit_reason(error) if is_death(error) else None
        return None

    def _unfinished(self) -> list[Pending]:
        """Calls that have not ended, the oldest first; of some that have, the driver has not asked for the result."""
        import ray  # noqa: PLC0415 - as above

        pending = self._health.pending()
        if not pending:
            return []
        ended, _ = ray.wait([ref for ref, _ in pending], num_returns=len(pending), timeout=0, fetch_local=False)
        return [call for ref, call in pending if ref not in ended]

    def _report_waits(self) -> None:
        pending = self._unfinished()
        report = waiting_report(pending, self._signs, self._next_report_s, late_s=self._late_s)
        if report is None:
            if waiting_report(pending, self._signs, self._config.soft_deadline_s, late_s=self._late_s) is None:
                self._next_report_s = self._config.soft_deadline_s
            return
        # Each further report of the same wait comes after twice the time.
        self._next_report_s *= 2
        print(self._health.redact(report), file=self._out or sys.stderr, flush=True)


def silent_text(doing: str, sign: Sign) -> str:
    """The message about a worker that lives and sends no heartbeat.

    Args:
        doing: its call, and who it is.
        sign: what it said last.
    """
    beat = sign.beat
    call = f"in {beat.call}" + (f" ({beat.place})" if beat.place else "") if beat.call else "between two calls"
    stack = f"; its stack was:\n{beat.stack}" if beat.stack else "."
    return (
        f"{doing}: no heartbeat has come for {sign.age_s:.0f} s (trainer.watchdog.silence_s): the process is stopped, or its "
        f"machine hangs or is cut off. It was last seen {call}{stack}"
    )


_HARMLESS = frozenset({"true", "false", "none", "null", "auto", "info", "warn", "warning", "error", "debug"})


def secrets_of(values: Mapping[str, str]) -> Sequence[str]:
    """Values that are hidden wherever they show up; the longest first, so that none hides inside another.

    Of a value with several lines each line counts too: outputs come line by line. Numbers and words that every program
    prints (``true``, ``INFO``) and what is shorter than four characters stay readable.
    """
    parts = {part for value in values.values() for part in (value, *value.splitlines())}
    secrets = {part for part in parts if len(part.strip()) >= 4 and part.lower() not in _HARMLESS}
    return sorted(secrets, key=lambda part: (-len(part), part))


def redactor(env_vars: Mapping[str, Any], replacement: str) -> Callable[[str], str]:
    """A function that takes the values of ``env_vars`` out of a text."""
    secrets = secrets_of({name: str(value) for name, value in env_vars.items()})

    def redact(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, replacement)
        return text

    return redact
