"""The process that stands between a program and the code it does not trust.

Started as a command (see ``rl_rewards.sandbox.local``), it reads what to run from stdin, isolates itself, forks the
supervisor and waits for it; the supervisor answers on stdout. One message starts the box, then one for each run; the end of
stdin ends everything.
"""

from __future__ import annotations

import marshal
import os
import resource
from _signal import SIG_DFL, SIGINT, signal  # type: ignore[import-not-found]  # the public module imports enum

from rl_rewards.confine import frames, isolate, kernel, tree
from rl_rewards.confine.drop import Bounds, Program
from rl_rewards.confine.processes import ProcessTree
from rl_rewards.confine.supervise import StartError, run

TYPE_CHECKING = False
if TYPE_CHECKING:  # see the package
    from typing import Any, NoReturn

IDLE_S = 300.0
"""Seconds without a message after which a box that was forgotten ends."""


class Box:
    """The supervisor's side of a conversation."""

    def __init__(self, start: dict[str, Any], code: bytes, owner: int | None, processes: ProcessTree) -> None:
        """Store what runs need.

        Args:
            start: the first message.
            code: text of the program.
            owner: user id for confined code.
            processes: for ending them.
        """
        self._start = start
        self._code = code
        self._owner = owner
        self._processes = processes
        self._folder: str = tree.SCRATCH if start["namespaces"] else start["scratch"]
        command = [part.replace("{file}", f"{self._folder}/{start['file_name']}") for part in start["command"]]
        self._program = Program(
            command=command,
            environment={
                name: value.replace("{scratch}", self._folder) for name, value in start["environment"].items()
            },
            folder=self._folder,
            readable=[*start["folders"], *tree.DEVICES],
            owner=owner,
            landlock=start["landlock"],
            seccomp=start["seccomp"],
        )
        self._bounds = _bounds(start)

    def serve(self, requests: int, answers: int) -> None:
        """Answer until the other side closes."""
        while True:
            try:
                request, stdin = frames.receive(requests, IDLE_S)
            except (frames.PeerGoneError, TimeoutError):
                return
            try:
                self._fill_scratch()
                outcome, stdout, stderr = run(
                    self._program,
                    self._bounds,
                    stdin,
                    float(request),
                    self._start["output_bytes"],
                    requests,
                    self._processes,
                )
            except (OSError, StartError) as error:
                _answer(answers, {"error": f"{type(error).__name__}: {error}"})
            else:
                _answer(answers, vars(outcome), stdout, stderr)

    def _fill_scratch(self) -> None:
        if self._start["namespaces"]:
            tree.fresh_scratch(os.geteuid() if self._owner is None else self._owner, self._start["scratch_mb"])
        else:
            _empty(self._folder)
        with open(f"{self._folder}/{self._start['file_name']}", "xb") as file:
            file.write(self._code)


def _bounds(start: dict[str, Any]) -> Bounds:
    """The limits of a run, with the number of processes as the kernel counts them."""
    bounds = Bounds(**start["bounds"])
    if os.geteuid() != 0 and start["namespaces"]:
        bounds.processes += 2  # this process and the launcher have the user id of confined code
    elif os.geteuid() != 0:
        # All processes of the user count, so that any number could be too small.
        bounds.processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return bounds


def _empty(folder: str) -> None:
    """Remove what a run left in a folder of the real file system, also where it took away its own rights."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)
            _empty(entry.path)
            os.rmdir(entry.path)
        else:
            os.unlink(entry.path)


def _answer(fd: int, header: dict[str, Any], *parts: bytes) -> None:
    # As text, which the other side reads as literals: nothing that comes out of a sandbox is more than data.
    frames.send(fd, repr(header).encode(), *parts)


def main() -> NoReturn:
    """Serve whoever started this process."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.umask(0o022)
    message, code = frames.receive(requests, IDLE_S)
    start = marshal.loads(message)
    processes = ProcessTree()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    try:
        owner = _isolate(start)
    except OSError as error:
        _answer(answers, {"error": str(error.strerror or error)})
        os._exit(1)
    supervisor = os.fork()
    if supervisor:
        os.close(requests)
        os.close(answers)
        os.waitpid(supervisor, 0)
        os._exit(0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, kernel.SIGKILL)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # its memory is read by nobody
    signal(SIGINT, SIG_DFL)  # which the first process of a namespace cannot be sent
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)  # whoever loses its parent is still found
    processes.adopt()
    _answer(answers, {"ready": True, "counts_memory": processes.is_listed()})
    Box(start, code, owner, processes).serve(requests, answers)
    os._exit(0)


def _isolate(start: dict[str, Any]) -> int | None:
    if start["namespaces"]:
        owner = isolate.enter_namespaces(start["folders"])
        if os.geteuid() == 0:
            isolate.limit_supervisor()
        return owner
    if os.geteuid() != 0 or not isolate.is_public(start["command"][0]):
        return None
    owner = isolate.unprivileged_uid()
    os.chown(start["scratch"], owner, owner)
    return owner
