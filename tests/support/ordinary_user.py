"""Runs a script as a user without privileges, also where the tests run as root."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import rl_core
import rl_rewards
from rl_rewards.sandbox.languages import interpreter

NOBODY = 65534
# Folders of root's home, where an interpreter may lie, are closed to others: shown once more, at a place that is open.
AS_NOBODY = """
import os, sys
sys.path += sys.argv[1].split(":")
from rl_rewards.confine import kernel
prefix, shown, nobody, code = sys.argv[2:]
kernel.unshare("mount")
kernel.mount("none", "/", None, kernel.MS_REC_PRIVATE)
kernel.mount(prefix, shown, None, 0x1000)
os.setgroups([])
os.setresgid(*3 * [int(nobody)])
os.setresuid(*3 * [int(nobody)])
os.environ["PYTHONPATH"] = sys.argv[1]
os.execv(shown + sys.argv[0], [shown + sys.argv[0], "-S", "-c", code])
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code that may import `rl_core` and `rl_rewards`, and no installed package."""
    sources = ":".join(str(Path(package.__file__).parent.parent) for package in (rl_core, rl_rewards))
    options = {"capture_output": True, "text": True, "timeout": 120, "check": False}
    if os.geteuid() != 0:
        environment = os.environ | {"PYTHONPATH": sources}
        return subprocess.run([sys.executable, "-S", "-c", code], env=environment, **options)
    prefix = os.path.realpath(sys.base_prefix)
    below = interpreter().removeprefix(prefix)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        start = AS_NOBODY.replace("sys.argv[0]", repr(below))
        command = [interpreter(), "-S", "-c", start, sources, prefix, folder, str(NOBODY), code]
        return subprocess.run(command, cwd="/", **options)
