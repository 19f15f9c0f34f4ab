"""A pool of processes that call reward functions: each call has a deadline, and what misses it is killed.

One thread of the controller owns the processes; it never waits for one of them, and holds no lock while it works. Calls that
are cheap travel several at a time, so that a score costs less than its way.

What happens when a process dies: the call it was at is missing, with the reason. Calls that stood behind it go to another
process. Of several coroutines that ran in it nobody knows which one did it, so each is called again with no other beside it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import cloudpickle

from rl_core.contracts.reward import RewardFailure, RewardResult, missing_reward
from rl_core.errors import ConfigError, RlError
from rl_core.scoring import guard
from rl_core.scoring.frames import NUMBER, Kind, Unreadable
from rl_core.scoring.plain import decode
from rl_core.scoring.process import MAX_PRINTED_BYTES, Job, WorkerProcess, session_sizes
from rl_core.scoring.worker import CANCEL_GRACE_S, late_text

MAX_PROCESSES = 64
"""Of one worker, itself and all that its functions start."""
_PATIENCE_S = 0.05
"""A queue that one process does not empty in this time is worth the start of the others."""
_START_S = 120.0
"""A process that has not loaded its function in this time never will; at least as long as a call may take."""
_KILL_GRACE_S = 0.5
_WATCH_S = 0.2
_TICK_S = 1.0
_MAX_STARTS = 3
_MAX_AHEAD = 16
_AHEAD_S = 2e-3
"""Calls wait in a process's line as long as they are sure to take no more than this together."""
_ENDED = "the process of the reward function ended"


class Gate(Protocol):
    """Says when the next call may start."""

    def wait_s(self, now: float) -> float:
        """Seconds from ``now`` until a call may start; 0 if it may."""

    def started(self, now: float) -> None:
        """A call starts."""

    def ended(self, results: Sequence[RewardResult], now: float) -> None:
        """A call has ended."""


class ScorePool:
    """Calls functions in at most ``num_workers`` processes. Processes are started when there is something to do."""

    def __init__(
        self,
        *,
        num_workers: int,
        timeout_s: float,
        memory_mb: int | None = None,
        max_concurrent: int = 64,
        gate: Gate | None = None,
    ) -> None:
        """Store the limits; nothing is started.

        Args:
            num_workers: processes.
            timeout_s: deadline of one call, from when it begins.
            memory_mb: MiB that a process may take beyond what it has when the function is loaded; None leaves it free.
            max_concurrent: coroutines that run at once, over all processes.
            gate: limits the rate of calls.
        """
        self._num_workers = num_workers
        self._timeout_s = timeout_s
        self._memory_mb = memory_mb
        self._max_concurrent = max_concurrent
        self._gate = gate
        self._name = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._lock = threading.Lock()
        self._arrived: list[Job] = []
        self._is_closing = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._pickled: list[bytes] = []
        self._keys: dict[int, int] = {}
        self._kept: list[Any] = []
        self._num_jobs = 0
        # From here on the thread's own.
        self._queue: deque[Job] = deque()
        self._workers: list[WorkerProcess] = []
        self._num_started = 0
        self._num_failed_starts = 0
        self._num_lost = 0
        self._backlog_since: float | None = None
        self._gate_opens: float | None = None
        self._seconds_each: float | None = None
        self._watched_at = 0.0

    def add_function(self, function: Any) -> int:
        """Make a function known; its key for ``submit``.

        Raises:
            ConfigError: it cannot be sent to a process.
        """
        if id(function) not in self._keys:
            try:
                pickled = cloudpickle.dumps(function)
            except Exception as error:
                msg = (
                    f"reward function {function!r} cannot be sent to a process: {type(error).__name__}: {error}. Define it at "
                    "the top of a module or file, and let it make what it needs (clients, locks, open files) when it is called."
                )
                raise ConfigError(msg) from error
            self._keys[id(function)] = len(self._pickled)
            self._pickled.append(pickled)
            self._kept.append(function)  # an id is a name as long as the object lives
        return self._keys[id(function)]

    def submit(self, calls: Iterable[tuple[int, dict[str, Any], int]]) -> list[Job]:
        """Start calls: (key of the function, arguments, number of rows or 0). Returns at once.

        A call whose arguments cannot be sent is missing.

        Raises:
            RlError: the pool is closed, or has failed.
        """
        jobs = []
        for key, arguments, num_rows in calls:
            try:
                pickled, problem = pickle.dumps(arguments, protocol=5), None
            except Exception as error:  # objects of the data's
                pickled, problem = b"", f"the arguments cannot be sent to a process: {type(error).__name__}: {error}"
            job = Job(self._num_jobs, key, pickled, num_rows)
            self._num_jobs += 1
            jobs.append(job)
            if problem is not None:
                job.future.set_result([missing_reward(RewardFailure.ERROR, problem)] * max(num_rows, 1))
        ready = [job for job in jobs if not job.future.done()]
        if ready:
            self._start(ready)
        return jobs

    def close(self) -> None:
        """End every process; calls that are not answered are missing. May be called twice."""
        with self._lock:
            self._is_closing = True
            thread = self._thread
        if thread is not None:
            self._wake()
            thread.join()
        if self._guard is not None:
            guard_process, self._guard = self._guard, None
            if guard_process.stdin is not None:
                guard_process.stdin.close()
            guard_process.wait()

    def worker_ids(self) -> list[int]:
        """Process ids of the workers that run now."""
        return [worker.process.pid for worker in list(self._workers)]

    def _start(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            if self._is_closing or self._failure is not None:
                msg = f"the pool of reward processes {'is closed' if self._is_closing else 'failed'}"
                raise RlError(msg) from self._failure
            self._arrived += jobs
            if self._thread is None:
                self._wakes, self._waker = os.pipe()
                os.set_blocking(self._wakes, False)
                os.set_blocking(self._waker, False)
                self._start_guard()
                self._thread = threading.Thread(target=self._work, name="reward pool", daemon=True)
                self._thread.start()
        self._wake()

    def _start_guard(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != guard.MARK}
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(guard.__file__), self._name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it has been woken many times over
            os.write(self._waker, b"x")

    # What follows runs in the pool's thread.

    def _work(self) -> None:
        failure: BaseException = RlError("the pool of reward processes was closed")
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakes, selectors.EVENT_READ)
        try:
            while self._turn():
                pass
        except BaseException as error:  # a fault of the pool's own: whoever waits is told
            failure = error
        with self._lock:
            self._failure = failure
            waiting = [*self._arrived, *self._queue]
        for worker in self._workers:
            waiting += [*worker.line, *worker.flying.values()]
            worker.kill()
        self._workers.clear()
        for job in waiting:
            if not job.future.done():  # cancelled ones are
                self._settle(job, RewardFailure.CRASHED, str(failure))
        self._selector.close()

    def _turn(self) -> bool:
        with self._lock:
            if self._is_closing:
                return False
            self._queue += self._arrived
            self._arrived = []
        now = time.monotonic()
        self._enforce(now)
        self._dispatch(now)
        self._scale(now)
        for key, mask in self._selector.select(self._pause(time.monotonic())):
            if key.data is None:
                os.read(self._wakes, 1 << 12)
            elif key.data in self._workers:
                self._hear(key.data, key.fileobj, mask)
        return True

    def _hear(self, worker: WorkerProcess, source: Any, mask: int) -> None:
        if source == worker.output:
            self._show(worker)
            return
        if mask & selectors.EVENT_WRITE:
            worker.flush()
            self._watch_writes(worker)
        if not mask & selectors.EVENT_READ:
            return
        try:
            for kind, payload in worker.receive():
                self._take(worker, kind, payload)
        except EOFError:
            self._show(worker)
            self._lose(worker, RewardFailure.CRASHED, _ENDED, [*worker.line][:1])
        except (Unreadable, ValueError) as error:
            reason = f"the process of the reward function wrote into the pool's connection: {error}"
            self._lose(worker, RewardFailure.CRASHED, reason, [*worker.line][:1])

    def _take(self, worker: WorkerProcess, kind: Kind, payload: bytes) -> None:
        match kind:
            case Kind.READY:
                worker.is_ready = True
                self._num_failed_starts = 0
            case Kind.LOADED:
                worker.loaded(NUMBER.unpack(payload)[0])
            case Kind.ACCEPTED:
                worker.accepted(NUMBER.unpack(payload)[0])
            case Kind.ANSWER:
                results = decode(payload[NUMBER.size :])
                number = NUMBER.unpack_from(payload)[0]
                is_plain = number not in worker.flying
                job = worker.answered(number)
                if len(results) != max(job.num_rows, 1):
                    worker.line.appendleft(job)
                    msg = f"{len(results)} results of {max(job.num_rows, 1)}"
                    raise ValueError(msg)
                now = time.monotonic()
                if is_plain and job.started is not None:
                    spent = now - job.started
                    before = spent if self._seconds_each is None else self._seconds_each
                    self._seconds_each = max(0.9 * before + 0.1 * spent, 0.1 * spent)
                self._gate_ended(job, results)
                job.future.set_result(results)
            case _:
                msg = f"a frame of kind {kind}"
                raise ValueError(msg)

    def _show(self, worker: WorkerProcess) -> None:
        shown = worker.read_output()
        if shown is None:
            if worker.output in self._selector.get_map():
                self._selector.unregister(worker.output)
        elif shown:
            sys.stderr.write(shown.decode(errors="replace"))
        if worker.printed > MAX_PRINTED_BYTES:
            reason = f"the reward function printed more than {MAX_PRINTED_BYTES:,} bytes"
            self._lose(worker, RewardFailure.OUTPUT, reason, [*worker.line][:1])

    def _enforce(self, now: float) -> None:
        """Kill what is late, too large, or dead without having said so."""
        for worker in list(self._workers):
            head = worker.line[0] if worker.line else None
            hard = self._timeout_s + CANCEL_GRACE_S + _KILL_GRACE_S
            late = [job for job in worker.flying.values() if job.started is not None and now - job.started > hard]
            if not worker.is_ready or worker.loading:
                if now - worker.since > max(_START_S, self._timeout_s):
                    reason = f"the reward function was not loaded within {max(_START_S, self._timeout_s):g} s"
                    self._lose(worker, RewardFailure.TIMEOUT, reason, [*worker.line])
            elif head is not None and now - worker.since > self._timeout_s:
                self._lose(worker, RewardFailure.TIMEOUT, late_text(self._timeout_s), [head])
            elif late:
                # One that blocks the loop makes all of them late; nobody knows which. `_lose` has those called again, alone.
                self._lose(worker, RewardFailure.TIMEOUT, late_text(self._timeout_s), [])
            elif worker.is_dead:
                self._lose(worker, RewardFailure.CRASHED, _ENDED, [*worker.line][:1])
            elif worker.load and now - worker.since > _WATCH_S:
                # What it has answered is read first. Usually its socket tells; not when something it forked still holds it.
                worker.is_dead = worker.process.poll() is not None
        busy = [worker for worker in self._workers if worker.load and now - worker.since > _WATCH_S]
        if busy and now - self._watched_at > _WATCH_S:
            self._watched_at = now
            self._watch(busy)

    def _watch(self, workers: Sequence[WorkerProcess]) -> None:
        sizes = session_sizes()
        for worker in workers:
            count, size = sizes.get(worker.process.pid, (1, 0))
            if count > MAX_PROCESSES:
                reason = f"it has {count} processes; {MAX_PROCESSES} may be"
                self._lose(worker, RewardFailure.CRASHED, reason, [*worker.line][:1])
            # Twice: a function's own limit is beyond what it has after loading, and raises where it can be caught.
            elif self._memory_mb is not None and size > 2 * self._memory_mb << 20:
                reason = f"its processes hold {size >> 20} MiB (reward_model.memory_limit_mb is {self._memory_mb})"
                self._lose(worker, RewardFailure.MEMORY, reason, [*worker.line][:1])

    def _lose(self, worker: WorkerProcess, failure: RewardFailure, reason: str, guilty: Sequence[Job]) -> None:
        """End a process; its guilty calls are missing, the others are called again."""
        for source in (worker.connection, worker.output):
            if source in self._selector.get_map():
                self._selector.unregister(source)
        self._workers.remove(worker)
        ended = worker.kill()
        if failure is RewardFailure.CRASHED and ended != "it was killed":
            reason = f"{reason} ({ended})"
        flying = list(worker.flying.values())
        if not guilty and (len(flying) == 1 or worker.is_exclusive):
            guilty = flying
        for job in guilty:
            self._settle(job, failure, reason)
        innocent = [job for job in flying if job not in guilty]
        for job in innocent:
            job.is_alone = True
        for job in (*innocent, *worker.line):
            self._gate_ended(job, ())
        self._queue.extendleft(reversed([*innocent, *(job for job in worker.line if job not in guilty)]))
        self._num_lost += 1
        self._seconds_each = None
        self._num_failed_starts += not worker.is_ready
        if self._num_failed_starts >= _MAX_STARTS:
            said = worker.last_words.decode(errors="replace").strip()
            msg = f"{_MAX_STARTS} reward processes in a row did not start ({ended}); the last one said: {said or 'nothing'}"
            raise RlError(msg)

    def _settle(self, job: Job, failure: RewardFailure, reason: str) -> None:
        results = [missing_reward(failure, reason)] * max(job.num_rows, 1)
        self._gate_ended(job, results)
        job.future.set_result(results)

    def _gate_ended(self, job: Job, results: Sequence[RewardResult]) -> None:
        if self._gate is not None and job.is_out:
            self._gate.ended(results, time.monotonic())
        job.is_out = False

    def _dispatch(self, now: float) -> None:
        self._hand_out(now)
        for worker in self._workers:
            if worker.has_unsent:
                worker.flush()
                self._watch_writes(worker)

    def _hand_out(self, now: float) -> None:
        self._gate_opens = None
        while self._queue:
            job = self._queue[0]
            if job.future.cancelled():
                self._queue.popleft()  # nobody wants it any more
                continue
            worker = self._free_worker(job)
            if worker is None:
                return
            if self._gate is not None:
                wait_s = self._gate.wait_s(now)
                if wait_s > 0:
                    self._gate_opens = now + wait_s
                    return
                self._gate.started(now)
            job.is_out = True
            self._queue.popleft()
            # One that was out before stays what it is: running.
            if not job.future.running() and not job.future.set_running_or_notify_cancel():
                self._gate_ended(job, ())
                continue
            worker.send(job, self._pickled[job.function])

    def _free_worker(self, job: Job) -> WorkerProcess | None:
        if self._is_full():
            return None
        each = self._seconds_each
        ahead = 1 if each is None else min(max(int(_AHEAD_S / max(each, 1e-9)), 1), _MAX_AHEAD)
        free = [
            worker
            for worker in self._workers
            if worker.is_ready
            and not worker.is_exclusive
            and len(worker.line) < ahead
            and not (job.is_alone and worker.load)
        ]
        return min(free, key=lambda worker: worker.load, default=None)

    def _is_full(self) -> bool:
        """As many coroutines run as may."""
        return sum(len(worker.flying) for worker in self._workers) >= self._max_concurrent

    def _scale(self, now: float) -> None:
        """Start processes: one for the first call, one for each that was lost, all when one does not keep up."""
        is_waiting = bool(self._queue) and self._gate_opens is None and not self._is_full()
        can_start = self._num_workers - len(self._workers)
        if not is_waiting or not any(worker.is_ready and not worker.loading for worker in self._workers):
            self._backlog_since = None
        elif self._backlog_since is None:
            self._backlog_since = now
        if not is_waiting or can_start <= 0:
            return
        number = 0
        if not self._workers:
            number = max(self._num_lost, 1)
        elif self._backlog_since is not None and now - self._backlog_since >= _PATIENCE_S:
            number = len(self._queue)
        elif all(worker.is_ready for worker in self._workers):
            number = self._num_lost
        self._num_lost = 0 if number else self._num_lost
        for _ in range(min(number, can_start, len(self._queue))):
            self._num_started += 1
            worker = WorkerProcess(f"{self._name}:{self._num_started}.", self._memory_mb, self._timeout_s)
            self._workers.append(worker)
            self._selector.register(worker.connection, selectors.EVENT_READ, worker)
            self._selector.register(worker.output, selectors.EVENT_READ, worker)
            self._watch_writes(worker)

    def _watch_writes(self, worker: WorkerProcess) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.has_unsent else 0)
        if self._selector.get_key(worker.connection).events != events:
            self._selector.modify(worker.connection, events, worker)

    def _pause(self, now: float) -> float:
        """Seconds until something has to be looked at although nobody says anything."""
        pause = _TICK_S
        for worker in self._workers:
            if worker.is_dead:
                pause = 0.0
            elif worker.load:
                pause = min(pause, _WATCH_S, max(self._timeout_s - (now - worker.since), 0.0) + 1e-3)
        if self._backlog_since is not None and len(self._workers) < self._num_workers:
            pause = min(pause, max(self._backlog_since + _PATIENCE_S - now, 0.0) + 1e-3)
        if self._gate_opens is not None:
            pause = min(pause, max(self._gate_opens - now, 0.0) + 1e-3)
        return pause
