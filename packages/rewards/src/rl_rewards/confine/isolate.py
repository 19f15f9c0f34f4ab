"""New namespaces for the supervisor, as root or as an ordinary user."""

from __future__ import annotations

import os

from rl_rewards.confine import kernel, tree

TYPE_CHECKING = False
if TYPE_CHECKING:  # see the package
    from collections.abc import Sequence
    from typing import Final

NAMESPACES: Final = ("mount", "pid", "net", "ipc", "uts")
INSIDE_UID: Final = 1000
"""User id that an ordinary user's sandbox has inside; not 0, so that no program started there gains capabilities."""
_NEEDED: Final = (
    kernel.CAP_DAC_OVERRIDE,
    kernel.CAP_KILL,
    kernel.CAP_SETGID,
    kernel.CAP_SETUID,
    kernel.CAP_SYS_ADMIN,
)


def enter_namespaces(folders: Sequence[str]) -> int:
    """Leave this process's children a world of their own; call before the fork of the supervisor.

    Root uses its rights to make it, an ordinary user a user namespace.

    Returns:
        The user id that confined code gets.

    Raises:
        OSError: a step was refused.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0 and kernel.has_capabilities(*_NEEDED):
        kernel.unshare(*NAMESPACES)
        owner = unprivileged_uid()
    else:
        kernel.unshare("user", *NAMESPACES)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{INSIDE_UID} {uid} 1"),
            ("gid_map", f"{INSIDE_UID} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
        owner = INSIDE_UID
    tree.enter(folders)
    return owner


def limit_supervisor() -> None:
    """Keep what starting and ending a run needs, and give up every other right.

    Raises:
        OSError: the kernel refused.
    """
    kernel.keep_capabilities(*_NEEDED)


def unprivileged_uid() -> int:
    """A user id that nobody else has: the kernel counts processes by it, and no file belongs to it."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        lines = [line.split() for line in file]
    first, count = max(((int(line[0]), int(line[2])) for line in lines), key=lambda item: item[1])
    spread = min(1 << 22, count // 2)  # 4 million is the most process ids that there can be
    if not spread:
        msg = "this process is root of a user namespace with one user id, so there is none to run code as"
        raise OSError(msg)
    # The last two ids of the whole range mean "no id".
    return first + count - 2 - os.getpid() % spread


def is_public(path: str) -> bool:
    """Whether every user can execute a file: as any other, nobody could where it lies in a home folder, say."""
    while True:
        if not os.stat(path).st_mode & 0o001:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)
