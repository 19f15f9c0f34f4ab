import subprocess
import sys

import pytest

pytestmark = pytest.mark.heavy


def test_descendants_are_counted_and_ended_wherever_they_went():
    code = """
import os, subprocess, sys, time
from rl_rewards.confine import kernel
from rl_rewards.confine.processes import ProcessTree
kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
tree = ProcessTree()
tree.adopt()
assert tree.is_listed() and tree.descendants() == [] and tree.memory_mb() == 0
# A child that ends, whose own child lives on in another session with 50 MB.
script = "x = bytearray(b'x') * (50 << 20); print(1, flush=True); import time; time.sleep(60)"
middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {script!r}], start_new_session=True)"
child = subprocess.Popen([sys.executable, "-S", "-c", middle], stdout=subprocess.PIPE)
child.stdout.readline()
child.wait()
print(len(tree.descendants()), 50 < tree.memory_mb() < 100)
tree.kill()
tree.reap()
print(tree.descendants())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.stderr == ""
    assert run.stdout.splitlines() == ["1 True", "[]"]
