"""Processes that belong together: a worker, and everything it has started, also once the worker itself is gone.

A worker leads a session and marks its environment, so what it starts can be told from other processes even after it has
been orphaned. Beside each worker runs a guard: this file as a script, with psutil and nothing else. It ends what a dead worker
leaves behind, and a worker that cannot end by itself once its node's raylet is gone. Another guard does the same for the
daemons of an embedded cluster when the driver is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import psutil

Identity = tuple[int, float]
"""Process id and time of birth in seconds since the epoch: ids are used again, the two together never."""

MARK = "RL_WORKER_PROCESS"
"""Environment variable that a worker's descendants inherit; its value names the worker."""

_SAME_BIRTH_S = 2.0
"""Times of birth are reckoned from the time of boot, which clock corrections move."""
_PATIENCE_S = 5.0
_LOOK_S = 0.3
"""The guard looks this often."""
_LOOKS_A_SNAPSHOT = 20
"""So many looks lie between two of the guard's lists of what the daemons have started."""
_ALONE_S = 3.0
"""Seconds that a worker gets to end by itself once its parent is gone."""


def lead() -> float:
    """Make this process the head of its kin, with a guard beside it; the time of its birth."""
    born = psutil.Process().create_time()
    if os.getpgid(0) != os.getpid():
        os.setsid()
    os.environ[MARK] = _mark((os.getpid(), born))
    _start_guard("worker", [(os.getpid(), born)], os.getppid())
    return born


def child_ids() -> set[int]:
    """Ids of the children of this process."""
    return {child.pid for child in psutil.Process().children()}


def guard_daemons(before: Collection[int]) -> None:
    """Let the children of this process that are not among ``before``, and theirs, end when this process does.

    Ray's daemons see to each other, but not all of them when this process is killed.
    """
    daemons = [child for child in psutil.Process().children() if child.pid not in before]
    _start_guard("daemons", [(child.pid, child.create_time()) for child in daemons], os.getpid())


def with_kin(identities: Sequence[Identity]) -> list[Identity]:
    """Those of these processes that run on this machine, and all that they have started."""
    roots = [process for process in map(_process, identities) if process is not None]
    found = {process.pid: process for root in roots for process in (root, *_children(root))}
    found |= {process.pid: process for process in _marked(identities)}
    return [(process.pid, process.create_time()) for process in found.values() if _alive(process)]


def kill(identities: Sequence[Identity], grace_s: float) -> None:
    """Wait until these processes of this machine are gone; kill what is left after ``grace_s`` seconds."""
    left = [process for process in map(_process, identities) if process is not None]
    ends = time.monotonic() + grace_s
    while any(map(_alive, left)) and time.monotonic() < ends:
        time.sleep(0.05)
    for process in left:
        if _alive(process):
            _kill(process)
    ends = time.monotonic() + _PATIENCE_S
    while any(map(_alive, left)) and time.monotonic() < ends:
        time.sleep(0.02)


def _start_guard(role: str, processes: Sequence[Identity], watched: int) -> None:
    """Start this file as a script; it watches ``processes`` and the process with the id ``watched``."""
    command = "import runpy, sys; sys.path.append(sys.argv.pop(1)); runpy.run_path(sys.argv[1], run_name='__main__')"
    site = str(Path(psutil.__file__).parents[1])
    identities = [text for pid, born in processes for text in (str(pid), repr(born))]
    # Without site-packages it starts at once, and without the mark in its environment it is nobody's kin.
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", command, site, __file__, role, str(watched), *identities],
        env={name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
        start_new_session=True,
        check=True,
    )


def _guard_daemons(daemons: Sequence[Identity], owner: int) -> None:
    """Remember what the daemons start; end all of it once their owner, or all of them, are gone.

    Args:
        daemons: children of the owner.
        owner: id of the process that started them.
    """
    known: dict[Identity, None] = {}
    looks = 0
    while True:
        roots = [process for process in map(_process, daemons) if process is not None and _alive(process)]
        if looks % _LOOKS_A_SNAPSHOT == 0:
            found = [process for root in roots for process in (root, *_children(root))]
            known |= {(process.pid, process.create_time()): None for process in found if _alive(process)}
        if not roots or any(_parent(process) != owner for process in roots):
            break
        looks += 1
        time.sleep(_LOOK_S)
    kill(list(known), _ALONE_S)


def _guard_worker(worker: Identity, parent: int) -> None:
    """Wait until the worker is gone, then end its kin; end the worker too when its parent is gone and it is not.

    Args:
        worker: the process to guard.
        parent: id of the process that started it.
    """
    while (process := _process(worker)) is not None and _alive(process) and _parent(process) == parent:
        time.sleep(_LOOK_S)
    kin = with_kin([worker])
    kill(kin, _ALONE_S if any(pid == worker[0] for pid, _ in kin) else 0.0)
    # What was started while the others were killed.
    kill(with_kin([worker]), 0.0)


def _mark(identity: Identity) -> str:
    pid, born = identity
    return f"{pid}:{born!r}"


def _marked(identities: Sequence[Identity]) -> Iterator[psutil.Process]:
    """Processes that carry a worker's mark, or live in its session or process group."""
    marks = {_mark(identity) for identity in identities}
    # Whoever has the id of a dead worker now leads a session of its own.
    leaders = {pid for pid, born in identities if not psutil.pid_exists(pid) or _process((pid, born)) is not None}
    for process in psutil.process_iter():
        try:
            ids = {os.getsid(process.pid), os.getpgid(process.pid)}
            if ids & leaders or process.environ().get(MARK) in marks:
                yield process
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's


def _process(identity: Identity) -> psutil.Process | None:
    pid, born = identity
    try:
        process = psutil.Process(pid)
        return process if abs(process.create_time() - born) < _SAME_BIRTH_S else None
    except psutil.NoSuchProcess:
        return None


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None


def _alive(process: psutil.Process) -> bool:
    """Whether it runs; one that has ended and was not collected by its parent does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return  # gone in between, which is what was wanted


if __name__ == "__main__":
    # Who starts a guard waits for this process, not for the guard: a worker that ends kills its direct children.
    if os.fork() == 0:
        kind, above, *rest = sys.argv[2:]
        named = [(int(pid), float(born)) for pid, born in zip(rest[::2], rest[1::2], strict=True)]
        if kind == "worker":
            _guard_worker(named[0], int(above))
        else:
            _guard_daemons(named, int(above))
