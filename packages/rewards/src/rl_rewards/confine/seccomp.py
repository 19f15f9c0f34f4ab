"""A filter for system calls: those that code from a response has no business with fail with EPERM.

A list of what is refused, not of what is allowed: interpreters differ too much from one version to the next, and this is
the third wall, behind the namespaces and the missing rights. It has a program of its own rather than a library's, since a
default install must not need one.

Source: Linux, Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from rl_rewards.confine import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:  # see the package
    from collections.abc import Iterable
    from typing import Final

AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN: Final = {"x86_64": 0, "aarch64": 1}

REFUSED: Final[dict[str, tuple[int | None, int | None]]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    # mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    # the network; io_uring would open sockets past this filter
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # memory that RLIMIT_AS does not count
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # the machine
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    # parts of the kernel with a history of holes
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "personality": (135, 92),
    "modify_ldt": (154, None),
}
"""Name -> number on x86-64 and on ARM64."""

_CLONE, _CLONE3 = (56, 220), (435, 435)
_SOCKETPAIR = (53, 199)
_OF_ONESELF: Final = {
    "prlimit64": (302, 261),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
}
"""Allowed with 0, the calling process, as first argument: the supervisor of an ordinary user has the same user id."""
_X32_BIT: Final = 0x40000000
_SOCK_STREAM: Final = 1

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def available() -> bool:
    """Whether the filter is known for this architecture."""
    return kernel.machine() in AUDIT_ARCH


def program(machine: str, refused: Iterable[str] = tuple(REFUSED)) -> bytes:
    """The filter as BPF instructions.

    Args:
        machine: a key of ``AUDIT_ARCH``.
        refused: keys of ``REFUSED``.
    """
    column = _COLUMN[machine]
    lines: list[tuple[int, int, int, int]]
    lines = [(_LOAD, 0, 0, _ARCH_AT), (_EQUAL, 1, 0, AUDIT_ARCH[machine]), (_RETURN, 0, 0, _KILL)]
    lines += [(_LOAD, 0, 0, _NUMBER_AT)]
    if machine == "x86_64":
        lines += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for name in refused:
        number = REFUSED[name][column]
        if number is not None:
            lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    # The C library falls back to clone, whose flags a filter can see; those of clone3 lie in memory.
    lines += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    namespaces = 0
    for flag in kernel.NEW_NAMESPACES.values():
        namespaces |= flag
    lines += _where(_CLONE[column], 0, [(_ANY_BIT, 0, 1, namespaces | 0x02000000)])
    for numbers in _OF_ONESELF.values():
        lines += _where(numbers[column], 0, [(_EQUAL, 1, 0, 0)])
    # Datagram pairs could send to any address of a local socket; event loops and pipes use streams.
    lines += _where(_SOCKETPAIR[column], 1, [(_AND, 0, 0, 0xF), (_EQUAL, 1, 0, _SOCK_STREAM)])
    lines += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _where(number: int, argument: int, test: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """EPERM for one call if ``test`` of an argument falls through to the next instruction; else allowed."""
    body = [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument), *test, (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    return [(_EQUAL, 0, len(body) + 1, number), *body, (_RETURN, 0, 0, _ALLOW)]


def install(refused: Iterable[str] = tuple(REFUSED)) -> None:
    """Filter this process and all that it will start, for ever; needs ``PR_SET_NO_NEW_PRIVS`` or privileges.

    Raises:
        OSError: the kernel has no filters, or the architecture is not known.
    """
    if not available():
        msg = f"no filter for {kernel.machine()}, only for {', '.join(AUDIT_ARCH)}"
        raise OSError(errno.ENOSYS, msg)
    code = program(kernel.machine(), refused)
    filter_mode = 2
    kernel.prctl(kernel.PR_SET_SECCOMP, filter_mode, ctypes.byref(_SockFprog(len(code) // 8, code)))
