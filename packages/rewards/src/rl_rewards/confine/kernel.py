"""System calls that Python has no function for, on Linux for x86-64 and ARM64.

Source: Linux, include/uapi; man pages unshare(2), pivot_root(2), open_tree(2), move_mount(2), mount_setattr(2), capset(2).
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # see the package
    from typing import Final

NEW_NAMESPACES: Final = {
    "mount": 0x00020000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
"""``CLONE_NEW*`` flag of each kind."""

MS_REC_PRIVATE: Final = 0x4000 | 0x40000
MS_NOSUID_NODEV: Final = 0x2 | 0x4
MNT_DETACH: Final = 2
AT_FDCWD: Final = -100
AT_EMPTY_PATH: Final = 0x1000
AT_RECURSIVE: Final = 0x8000
OPEN_TREE_CLONE_CLOEXEC: Final = 1 | 0o2000000
MOVE_MOUNT_F_EMPTY_PATH: Final = 4
MOUNT_ATTR_RDONLY_NOSUID: Final = 1 | 2

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_SET_SECCOMP: Final = 22
PR_SET_CHILD_SUBREAPER: Final = 36
PR_SET_NO_NEW_PRIVS: Final = 38

SIGKILL, SIGXCPU = 9, 24
CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN = 1, 5, 6, 7, 21
_CAPABILITY_VERSION: Final = 0x20080522

# The numbers of calls since 5.1 are the same on every architecture.
_COMMON: Final = {"open_tree": 428, "move_mount": 429, "close_range": 436, "mount_setattr": 442}
_BY_MACHINE: Final = {
    "x86_64": {"pivot_root": 155, "capget": 125, "capset": 126},
    "aarch64": {"pivot_root": 41, "capget": 90, "capset": 91},
}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def machine() -> str:
    """Name of the processor architecture, as ``uname -m`` prints it."""
    return os.uname().machine


def call(number: int, *arguments: object) -> int:
    """A system call by its number.

    Raises:
        OSError: the kernel refused.
    """
    result = _libc.syscall(ctypes.c_long(number), *(_word(argument) for argument in arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{os.strerror(code)} (system call {number})")
    return int(result)


def named(name: str, *arguments: object) -> int:
    """A system call by its name.

    Raises:
        OSError: the kernel refused, or the architecture is not known here.
    """
    number = _COMMON.get(name) or _BY_MACHINE.get(machine(), {}).get(name)
    if number is None:
        msg = f"{name}: not known for {machine()}, only for {', '.join(_BY_MACHINE)}"
        raise OSError(msg)
    try:
        return call(number, *arguments)
    except OSError as error:
        raise OSError(error.errno, f"{os.strerror(error.errno or 0)} ({name})") from None


def _word(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{os.strerror(code)} ({what})")


def unshare(*kinds: str) -> None:
    """Move this process into new namespaces; a new ``pid`` one holds its children.

    Raises:
        OSError: not permitted, or too many exist.
    """
    flags = 0
    for kind in kinds:
        flags |= NEW_NAMESPACES[kind]
    _check(_libc.unshare(ctypes.c_int(flags)), f"unshare {'+'.join(kinds)}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a file system, or change a mount.

    Raises:
        OSError: the kernel refused.
    """
    result = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, f"mount on {target}")


def unmount(target: str) -> None:
    """Take a mount away, also while it is in use.

    Raises:
        OSError: the kernel refused.
    """
    _check(_libc.umount2(target.encode(), MNT_DETACH), f"unmount {target}")


def read_only(fd: int, path: str = "", *, recursive: bool = True) -> None:
    """Make a mount read-only, without setuid programs.

    Args:
        fd: of a detached mount; ``AT_FDCWD`` with ``path``.
        path: where the mount is.
        recursive: and every mount below it.

    Raises:
        OSError: the kernel refused, or is older than 5.12.
    """
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY_NOSUID, 0, 0, 0)
    flags = (0 if path else AT_EMPTY_PATH) | (AT_RECURSIVE if recursive else 0)
    named("mount_setattr", fd, path.encode(), flags, ctypes.byref(attributes), ctypes.sizeof(attributes))


def prctl(option: int, argument: object = 0, further: object = 0) -> None:
    """Set an attribute of this process.

    Raises:
        OSError: the kernel refused.
    """
    words = [_word(argument), _word(further), ctypes.c_long(0), ctypes.c_long(0)]
    _check(_libc.prctl(ctypes.c_int(option), *words), f"prctl {option}")


def has_capabilities(*capabilities: int) -> bool:
    """Whether this process holds all of them."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)()
    named("capget", header, data)
    held = data[0] | data[3] << 32
    return all(held >> capability & 1 for capability in capabilities)


def keep_capabilities(*capabilities: int) -> None:
    """Give up every capability but these.

    Raises:
        OSError: one of them is not held.
    """
    mask = sum(1 << capability for capability in capabilities)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    named("capset", header, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0))
