"""The engine's processes do not outlive the worker that owns them."""

from __future__ import annotations

import os
import subprocess
import sys

from rl_rollout_vllm.owner import OWNER, owner_variable, started

ENGINE = "from rl_rollout_vllm.owner import watch_owner; watch_owner(); print('up', flush=True); import time; time.sleep(600)"
OWNER_OF_ONE = f"""
import os, subprocess, sys
from rl_rollout_vllm.owner import owner_variable
engine = subprocess.Popen([sys.executable, "-c", {ENGINE!r}], env=os.environ | owner_variable(), stdout=subprocess.PIPE)
engine.stdout.readline()
print(engine.pid, flush=True)
sys.stdin.read()
"""


def test_a_killed_owner_takes_its_engine_along():
    owner = subprocess.Popen([sys.executable, "-c", OWNER_OF_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    engine = int(owner.stdout.readline())
    since = started(engine)
    assert since is not None
    owner.kill()
    owner.wait()
    _wait_until_gone(engine, since)
    owner.communicate()


def test_a_process_without_an_owner_stays():
    code = "from rl_rollout_vllm.owner import watch_owner; watch_owner(); import threading; print(threading.active_count())"
    clean = {name: value for name, value in os.environ.items() if name != OWNER}
    for variables in (clean, clean | {OWNER: "self"}):
        if variables.get(OWNER):
            code = "import os; from rl_rollout_vllm.owner import *; os.environ.update(owner_variable()); " + code
        done = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True)
        assert done.stdout == "1\n"


def test_a_number_that_was_given_to_another_process_is_another_owner():
    number, _, since = str(owner_variable()[OWNER]).partition(":")
    assert (int(number), since) == (os.getpid(), started(os.getpid()))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert started(gone.pid) is None


def _wait_until_gone(number: int, since: str) -> None:
    import time

    deadline = time.monotonic() + 30
    while started(number) == since:
        assert time.monotonic() < deadline, "the engine's process is still there"
        time.sleep(0.05)
