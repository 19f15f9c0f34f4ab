"""What the driver knows of its workers: who they are, what was asked of them, and the first thing that went wrong.

One object for all groups of a run: whichever thread learns of a failure writes it down, and every wait of the driver
looks here, so the death of an idle worker ends a wait for a busy one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_core.errors import RlError
    from rl_core.runtime.ray.activity import LogFile
    from rl_core.single_controller.base.progress import Progress


@dataclass(frozen=True, slots=True)
class Member:
    """A worker as the driver knows it.

    Attributes:
        name: ``group/rank``.
        group: name of its group.
        rank: position in it.
        world_size: workers in it.
        node_id: Ray's id of its node.
        node_ip: address of its node.
        pid: process id there.
        born: when the process started, in seconds since the epoch.
        handle: of its actor.
        files: where it prints on its node, and where its own output begins there.
    """

    name: str
    group: str
    rank: int
    world_size: int
    node_id: str
    node_ip: str
    pid: int
    born: float
    handle: Any
    files: tuple[LogFile, ...] = ()

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world_size} of worker group {self.group!r} (node {self.node_ip}, pid {self.pid})"


@dataclass(frozen=True, slots=True)
class Pending:
    """A call that the driver has made and not seen the end of.

    Attributes:
        member: who was called.
        method: what.
        place: where in the run.
        started: ``time.monotonic()`` of the call.
    """

    member: Member
    method: str
    place: Progress
    started: float

    def __str__(self) -> str:
        place = f" ({self.place})" if str(self.place) else ""
        return f"{self.method}{place} on {self.member}"


class RunHealth:
    """Members, pending calls and the first failure of a run. Thread-safe."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        """Nobody is there, and all is well.

        Args:
            redact: takes the run's secrets out of a text.
        """
        self.redact = redact
        self.is_told = False
        self._lock = threading.Lock()
        self._members: dict[str, Member] = {}
        self._pending: dict[Any, Pending] = {}
        self._forgotten: deque[Any] = deque()
        self._failure: RlError | None = None

    @property
    def failure(self) -> RlError | None:
        """The first failure; None while all is well."""
        return self._failure

    def fail(self, error: RlError) -> RlError:
        """Write ``error`` down unless there is one already; the first one."""
        with self._lock:
            self._failure = self._failure or error
            return self._failure

    def told(self) -> RlError:
        """The first failure, for raising it; from then on ``is_told``."""
        if self._failure is None:
            msg = "a failure was to be raised, and there is none"
            raise RuntimeError(msg)
        self.is_told = True
        return self._failure

    def enrol(self, members: Iterable[Member]) -> None:
        """Watch ``members`` from now on."""
        with self._lock:
            self._members.update({member.name: member for member in members})

    def dismiss(self, members: Iterable[Member]) -> None:
        """Watch ``members`` no more."""
        with self._lock:
            for member in members:
                self._members.pop(member.name, None)

    def members(self) -> list[Member]:
        """Everybody who is watched."""
        with self._lock:
            return list(self._members.values())

    def called(self, ref: Any, member: Member, method: str, place: Progress) -> None:
        """A call was made; ``ref`` names it."""
        with self._lock:
            self._drop_forgotten()
            self._pending[ref] = Pending(member, method, place, time.monotonic())

    def returned(self, refs: Iterable[Any]) -> None:
        """These calls have ended."""
        with self._lock:
            for ref in refs:
                self._pending.pop(ref, None)

    def forget(self, ref: Any) -> None:
        """Nobody here will ask for the result of ``ref``: it was passed on to other workers.

        Takes no lock: the garbage collector calls it, in whatever thread it runs.
        """
        self._forgotten.append(ref)

    def pending(self) -> list[tuple[Any, Pending]]:
        """Calls that the driver waits for, the oldest first."""
        with self._lock:
            self._drop_forgotten()
            return sorted(self._pending.items(), key=lambda item: item[1].started)

    def pending_call(self, ref: Any) -> Pending | None:
        """What was asked with ``ref``."""
        with self._lock:
            return self._pending.get(ref)

    def _drop_forgotten(self) -> None:
        while self._forgotten:
            self._pending.pop(self._forgotten.popleft(), None)
