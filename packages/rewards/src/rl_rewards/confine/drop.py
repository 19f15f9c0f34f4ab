"""What a child gives up before it becomes the program of a response."""

from __future__ import annotations

import os
import resource
from _signal import SIG_DFL, SIGINT, SIGPIPE, SIGXFSZ, signal  # type: ignore[import-not-found]  # the public module imports enum

from rl_rewards.confine import kernel, landlock, seccomp

TYPE_CHECKING = False
if TYPE_CHECKING:  # see the package
    from collections.abc import Mapping, Sequence
    from typing import Final, NoReturn

_CLOSE_ON_EXEC: Final = 4
_MEGABYTE: Final = 1 << 20


class Bounds:
    """Limits of one run; the fields of ``rl_rewards.sandbox.Limits`` that are the kernel's to keep."""

    def __init__(self, cpu_s: float, memory_mb: int, file_mb: int, processes: int, open_files: int) -> None:
        """Store the arguments.

        Args:
            cpu_s: of each process.
            memory_mb: address space of each process.
            file_mb: size of a file.
            processes: of the user id, threads too.
            open_files: of each process.
        """
        self.cpu_s = cpu_s
        self.memory_mb = memory_mb
        self.file_mb = file_mb
        self.processes = processes
        self.open_files = open_files


class Program:
    """What to execute, and what is left to it."""

    def __init__(
        self,
        *,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        readable: Sequence[str],
        owner: int | None,
        landlock: bool,
        seccomp: bool,
    ) -> None:
        """Store the arguments.

        Args:
            command: absolute path of the interpreter and its arguments.
            environment: all of the environment.
            folder: the scratch folder, where it starts.
            readable: paths that Landlock leaves it.
            owner: user id to become; None keeps the present one.
            landlock: whether to apply it.
            seccomp: likewise.
        """
        self.command = command
        self.environment = environment
        self.folder = folder
        self.readable = readable
        self.owner = owner
        self.landlock = landlock
        self.seccomp = seccomp


def become(program: Program, bounds: Bounds, stdin: int, stdout: int, stderr: int, failure: int) -> NoReturn:
    """Turn this process, a fresh child, into ``program`` without rights; never returns.

    Args:
        program: what to execute.
        bounds: its limits.
        stdin: its descriptor 0.
        stdout: its descriptor 1.
        stderr: its descriptor 2; it gets no others.
        failure: closed by success; else gets a line that says what went wrong.
    """
    try:
        os.setsid()
        # Out of the way of 0, 1 and 2 first, whatever numbers they have now.
        standard = [os.dup(fd) for fd in (stdin, stdout, stderr)]
        for number, fd in enumerate(standard):
            os.dup2(fd, number)
        kernel.named("close_range", 3, 0xFFFFFFFF, _CLOSE_ON_EXEC)
        os.chdir(program.folder)
        _limit(bounds)
        _give_up_rights(program)
        for number in (SIGPIPE, SIGXFSZ, SIGINT):
            signal(number, SIG_DFL)
        os.execve(program.command[0], list(program.command), dict(program.environment))
    except BaseException as error:  # a child that went on would be a second supervisor
        os.write(failure, f"{type(error).__name__}: {error}".encode())
    os._exit(127)


def _limit(bounds: Bounds) -> None:
    limits = {
        resource.RLIMIT_CPU: -int(-bounds.cpu_s // 1),
        resource.RLIMIT_AS: bounds.memory_mb * _MEGABYTE,
        resource.RLIMIT_FSIZE: bounds.file_mb * _MEGABYTE,
        resource.RLIMIT_NOFILE: bounds.open_files,
        resource.RLIMIT_NPROC: bounds.processes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _give_up_rights(program: Program) -> None:
    kernel.prctl(kernel.PR_SET_PDEATHSIG, kernel.SIGKILL)
    if program.owner is not None and program.owner != os.geteuid():
        os.setgroups([])
        os.setresgid(program.owner, program.owner, program.owner)
        os.setresuid(program.owner, program.owner, program.owner)
    kernel.keep_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if program.landlock:
        landlock.restrict(program.readable, (program.folder, "/dev/null"))
    if program.seccomp:
        seccomp.install()
