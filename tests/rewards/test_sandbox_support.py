"""Machines where parts of the sandbox do not work: it says so, and is never weaker in silence."""

from __future__ import annotations

import subprocess
import sys

import ordinary_user
import pytest

pytestmark = pytest.mark.heavy

REFUSE = """
from rl_rewards.confine import kernel, seccomp
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
"""
# As container runtimes do for containers without privileges.
LIKE_A_CONTAINER = REFUSE + "seccomp.install(['unshare', 'mount', 'setns'])\n"

TRY = """
from rl_rewards.sandbox import Limits, SandboxError, probe, run_code
limits = Limits(wall_s=10)
support = probe()
print([layer for layer, works in support.layers.items() if works], "|", support.reasons, "|", support.missing)
try:
    run_code("print(1)", limits=limits)
except SandboxError as error:
    print("refused:", error)
else:
    print("ran")
"""

WEAKER = """
def weaker(code):
    result = run_code(code, limits=limits, allow_weaker=True)
    print(result.status, (result.stdout or result.stderr).strip().rpartition("\\n")[2])

weaker("print(2)")
weaker("open('/etc/passwd')")
weaker("import socket; socket.socket()")
weaker("open('/tmp/rl-sandbox-escape', 'w')")
weaker('''
import os, subprocess, sys
script = "import time; time.sleep(60)  # left-by-a-weaker-sandbox"
subprocess.Popen([sys.executable, "-S", "-c", script], start_new_session=True)
''')
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.sandbox
def test_everything_works_here():
    layers, last = run(TRY)
    assert layers == "['namespaces', 'landlock', 'seccomp'] | {} | ()"
    assert last == "ran"


def test_a_container_without_namespaces_is_refused_with_what_is_missing():
    layers, last = run(LIKE_A_CONTAINER + TRY)
    assert layers.startswith("['landlock', 'seccomp'] | {'namespaces': 'Operation not permitted (unshare")
    for what in ("filling the disk", "reaching other processes", "leaving processes behind"):
        assert what in last
    assert last.startswith("refused: the code sandbox would not keep code from ")
    assert "reward_model.sandbox_fusion.allow_weaker=true" in last
    assert "Operation not permitted (unshare" in last


def test_a_container_may_allow_less():
    _, _, plain, passwd, network, elsewhere, left = run(LIKE_A_CONTAINER + TRY + WEAKER)
    assert plain == "ok 2"
    assert passwd.startswith("error") and "PermissionError" in passwd
    assert network.startswith("error") and "PermissionError" in network
    assert elsewhere.startswith("error") and "PermissionError" in elsewhere
    assert left.strip() == "ok"
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "left-by-a-weaker-sandbox" not in processes


@pytest.mark.sandbox
def test_an_ordinary_user_without_namespaces():
    done = ordinary_user.run(LIKE_A_CONTAINER + TRY + WEAKER)
    assert done.stderr == ""
    layers, last, plain, passwd, *_ = done.stdout.splitlines()
    assert layers.startswith("['landlock', 'seccomp']")
    assert "starting processes without end" in last  # all processes of the user would count
    assert plain == "ok 2"
    assert "PermissionError" in passwd
