"""All processes of a run: what they use, and their end."""

from __future__ import annotations

import os

from rl_rewards.confine.kernel import SIGKILL

_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class ProcessTree:
    """The descendants of the process that makes it.

    Made before the file tree changes: it keeps a descriptor of ``/proc``, which confined processes do not see.
    """

    def __init__(self) -> None:
        """Open ``/proc``."""
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._is_first = False

    def adopt(self) -> None:
        """Call in the supervisor: the tree is that of this process."""
        self._is_first = os.getpid() == 1

    def is_listed(self) -> bool:
        """Whether the kernel lists children (``CONFIG_PROC_CHILDREN``), without which memory is not counted."""
        me = os.readlink("self", dir_fd=self._proc)
        return os.access(f"{me}/task/{me}/children", os.R_OK, dir_fd=self._proc)

    def descendants(self) -> list[int]:
        """Their process ids as ``/proc`` counts them."""
        found: list[int] = []
        unseen = [int(os.readlink("self", dir_fd=self._proc))]
        while unseen:
            children = self._children(unseen.pop())
            found += children
            unseen += children
        return found

    def memory_mb(self) -> float:
        """Memory that is theirs alone, in megabytes, at this moment; pages that several share count for each."""
        pages = 0
        for process in self.descendants():
            try:
                _, resident, shared, *_ = map(int, self._read(f"{process}/statm").split())
            except (OSError, ValueError):
                continue  # it ended meanwhile
            pages += resident - shared
        return pages * _PAGE_MB

    def kill(self) -> None:
        """End every one of them, whatever they do about it."""
        if self._is_first:
            _kill(-1)  # one step for the kernel: it lets no process of the namespace fork in between
            return
        while alive := [process for process in self.descendants() if not self._is_zombie(process)]:
            for process in alive:
                _kill(process)

    def reap(self) -> None:
        """Take the exit statuses of those that were killed."""
        try:
            while True:
                os.waitpid(-1, 0)
        except ChildProcessError:
            return

    def _children(self, process: int) -> list[int]:
        try:
            folder = os.open(f"{process}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._proc)
        except OSError:
            return []  # it ended meanwhile
        children: list[int] = []
        try:
            for thread in os.listdir(folder):
                children += map(int, self._read(f"{process}/task/{thread}/children").split())
        except OSError:
            pass  # so did this one
        finally:
            os.close(folder)
        return children

    def _is_zombie(self, process: int) -> bool:
        try:
            return self._read(f"{process}/stat").rpartition(b")")[2].split()[0] == b"Z"
        except OSError:
            return True

    def _read(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY, dir_fd=self._proc)
        try:
            return os.read(fd, 1 << 16)
        finally:
            os.close(fd)


def _kill(process: int) -> None:
    try:
        os.kill(process, SIGKILL)
    except ProcessLookupError:
        return
