"""The file tree that a confined process sees: a few read-only folders, four devices, and a scratch folder.

Nothing else exists there, so there is nothing to hide: no home, no ``/proc``, no ``/etc`` but the linker's cache.
"""

from __future__ import annotations

import os

from rl_rewards.confine import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:  # see the package
    from collections.abc import Sequence
    from typing import Final

SCRATCH: Final = "/box"
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_STAGING: Final = ("/tmp", "/dev", "/sys")


def enter(folders: Sequence[str]) -> None:
    """Make ``folders`` all there is, in a mount namespace of this process's own.

    Args:
        folders: absolute; files too. One that is a symbolic link stays one.

    Raises:
        OSError: a step was refused; says which.
    """
    kernel.mount("none", "/", None, kernel.MS_REC_PRIVATE)
    links = {path: os.readlink(path) for path in folders if os.path.islink(path)}
    # Taken before the new root covers whatever lies at the staging folder.
    sources = [(path, _detached(path)) for path in (*folders, *DEVICES) if path not in links]
    root = next(path for path in _STAGING if os.path.isdir(path))
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID_NODEV, "size=1m,mode=755")
    for path, fd in sources:
        _attach(fd, root + path)
        os.close(fd)
    for path, target in links.items():
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        os.symlink(target, root + path)
    os.mkdir(root + SCRATCH)
    os.chdir(root)
    kernel.named("pivot_root", b".", b".")
    kernel.unmount(".")
    os.chdir("/")
    kernel.read_only(kernel.AT_FDCWD, "/", recursive=False)


def _detached(path: str) -> int:
    """A copy of the mounts at a path, attached nowhere."""
    flags = kernel.OPEN_TREE_CLONE_CLOEXEC | kernel.AT_RECURSIVE
    try:
        return kernel.named("open_tree", kernel.AT_FDCWD, path.encode(), flags)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} of {path}") from None


def _attach(fd: int, target: str) -> None:
    if os.path.isdir(fd):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "x", encoding="utf-8"):
            pass
    kernel.read_only(fd)
    kernel.named("move_mount", fd, b"", kernel.AT_FDCWD, target.encode(), kernel.MOVE_MOUNT_F_EMPTY_PATH)


def fresh_scratch(owner: int, megabytes: int) -> None:
    """An empty scratch folder in memory, of limited size; what an earlier run left there is gone.

    Raises:
        OSError: the kernel refused.
    """
    if os.path.ismount(SCRATCH):
        kernel.unmount(SCRATCH)
    options = f"size={megabytes}m,nr_inodes=10k,mode=700,uid={owner},gid={owner}"
    kernel.mount("tmpfs", SCRATCH, "tmpfs", kernel.MS_NOSUID_NODEV, options)
