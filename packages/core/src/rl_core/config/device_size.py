"""Memory of the GPUs of this machine, without torch."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

GIB: Final = 2**30
_TIMEOUT_S: Final = 10.0


def local_device_bytes() -> int | None:
    """Memory of the smallest GPU here, as the driver's own tool counts; None where there is no such tool or no GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None  # a driver that does not answer tells nothing about the machine that will train
    return smallest(answer.stdout) if answer.returncode == 0 else None


def smallest(listed: str) -> int | None:
    """Bytes of the smallest number of MiB in ``listed``, one a line; None where no line holds one."""
    sizes = [int(line) for line in map(str.strip, listed.splitlines()) if line.isdigit()]
    return min(sizes) * 2**20 if sizes else None
