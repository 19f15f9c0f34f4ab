import subprocess
import sys

import pytest
from rl_rewards.confine import landlock


@pytest.mark.parametrize(
    ("version", "bits"),
    [
        (1, (0x1FFF, 0, 0)),
        (2, (0x3FFF, 0, 0)),
        (3, (0x7FFF, 0, 0)),
        (4, (0x7FFF, 3, 0)),
        (5, (0xFFFF, 3, 0)),
        (6, (0xFFFF, 3, 3)),
    ],
)
def test_what_a_version_rules(version, bits):
    assert landlock.handled(version) == bits


@pytest.mark.heavy
def test_only_named_paths_are_left(tmp_path):
    readable, writable, other = (tmp_path / name for name in ("readable", "writable", "other"))
    for folder in (readable, writable, other):
        folder.mkdir()
        (folder / "file").write_text("x")
    code = f"""
import os, socket
from rl_rewards.confine import kernel, landlock
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
landlock.restrict([{str(readable)!r}], [{str(writable)!r}, "/dev/null"])
def can(what, *arguments):
    try:
        what(*arguments)
    except PermissionError:
        return False
    return True
print([can(open, f"{tmp_path}/{{name}}/file", mode) for name in ("readable", "writable", "other") for mode in "rw"])
print(can(os.mknod, {str(writable / "device")!r}, 0o20600), can(os.kill, os.getppid(), 0), can(open, "/dev/null", "w"))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.stderr == ""
    assert run.stdout.splitlines()[0] == "[True, False, True, True, False, False]"
    signals = landlock.abi() < 6
    assert run.stdout.splitlines()[1] == f"False {signals} True"
