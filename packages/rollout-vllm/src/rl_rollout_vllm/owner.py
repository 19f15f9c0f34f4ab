"""Ends the engine's processes when the worker that owns them is gone.

A worker that is killed cannot tell its engine, which would keep its device for ever. So each process of the engine looks every
second whether the owner is still there. ``PR_SET_PDEATHSIG`` would not do: it follows the thread that started the process.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

OWNER: Final = "RL_VLLM_OWNER"
"""Variable that names the owner: its number, and when it was started, since numbers are used again."""

_LOOK_S: Final = 1.0


def owner_variable() -> dict[str, str | None]:
    """What the engine's processes inherit from this one."""
    return {OWNER: f"{os.getpid()}:{started(os.getpid())}"}


def watch_owner() -> None:
    """Leave when the owner does; nothing in a process that has none."""
    named = os.environ.get(OWNER)
    if named is None:
        return
    number, _, since = named.partition(":")
    if int(number) == os.getpid():
        return
    threading.Thread(target=_leave_with, args=(int(number), since), name="rl-vllm-owner", daemon=True).start()


def started(number: int) -> str | None:
    """When process ``number`` was started, in the kernel's count; None for one that is gone, or only waits to be buried."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def _leave_with(number: int, since: str) -> None:
    while started(number) == since:
        time.sleep(_LOOK_S)
    os._exit(1)
