"""Landlock: a process gives up every file but those it names, and the network, without privileges.

Source: Linux, Documentation/userspace-api/landlock.rst (ABI 1 to 7).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

from rl_rewards.confine import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:  # see the package
    from collections.abc import Iterable
    from typing import Final

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION_FLAG: Final = 1
_PATH_BENEATH: Final = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BASE: Final = (1 << 13) - 1


def abi() -> int:
    """Version that the kernel offers; 0 where there is none."""
    try:
        return kernel.call(_CREATE, None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def handled(version: int) -> tuple[int, int, int]:
    """Bits of file access, network access and scopes that a version can rule."""
    files = _BASE
    files |= _REFER if version >= 2 else 0
    files |= _TRUNCATE if version >= 3 else 0
    files |= _IOCTL_DEV if version >= 5 else 0
    bind_and_connect = 3 if version >= 4 else 0
    abstract_sockets_and_signals = 3 if version >= 6 else 0
    return files, bind_and_connect, abstract_sockets_and_signals


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Leave this process, and all it starts, these paths and what lies below them; no TCP, no signals to others.

    Args:
        readable: may be read and executed.
        writable: besides, files may be written, made and removed, but no devices and sockets.

    Raises:
        OSError: no Landlock here, or a path does not exist.
    """
    version = abi()
    files, net, scopes = handled(version)
    fields = [files, net, scopes][: 1 if version < 4 else 2 if version < 6 else 3]
    ruleset = kernel.call(_CREATE, struct.pack(f"={len(fields)}Q", *fields), 8 * len(fields), 0)
    for path in readable:
        _allow(ruleset, path, files & _READ)
    for path in writable:
        _allow(ruleset, path, files & ~(_MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK))
    kernel.call(_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _OF_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", access, fd))
        kernel.call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)
