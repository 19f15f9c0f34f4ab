import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from rl_core.runtime.ray.kin import kill, with_kin

pytestmark = pytest.mark.heavy

LEADER = """
import os, subprocess, sys, time
from rl_core.runtime.ray.kin import lead
born = lead()
children = [
    subprocess.Popen(["sleep", "600"]),
    subprocess.Popen(["sleep", "600"], start_new_session=True),
    subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"]}),
]
if (forked := os.fork()) == 0:
    time.sleep(600)
print(repr(born), forked, *(child.pid for child in children), flush=True)
time.sleep(600)
"""


@pytest.fixture
def leader():
    process = subprocess.Popen([sys.executable, "-c", LEADER], stdout=subprocess.PIPE, text=True)
    born, *children = process.stdout.readline().split()
    yield process, float(born), list(map(int, children))
    for pid in (process.pid, *map(int, children)):
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_kin_are_the_worker_and_all_that_it_has_started(leader):
    process, born, children = leader
    assert {pid for pid, _ in with_kin([(process.pid, born)])} == {process.pid, *children}
    assert with_kin([(process.pid, born - 60.0)]) == []  # an earlier process of that id


def test_a_worker_that_is_killed_takes_what_it_has_started_along(leader, gone):
    process, _, children = leader
    assert len(children) == 4
    process.kill()
    process.wait()
    assert gone(children, within_s=30.0) == []


def test_killing_waits_for_the_grace_and_ends_a_stopped_process(leader, gone):
    process, born, children = leader
    process.send_signal(signal.SIGSTOP)
    kill(with_kin([(process.pid, born)]), grace_s=0.2)
    assert process.wait(10.0) == -signal.SIGKILL
    assert gone(children) == []


def test_a_worker_whose_parent_is_gone_is_ended(gone):
    code = (
        "import subprocess, sys, time\n"
        "worker = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE, text=True)\n"
        "print(worker.pid, worker.stdout.readline(), flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, LEADER], stdout=subprocess.PIPE, text=True)
    worker, _, *children = parent.stdout.readline().split()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(list(map(int, [worker, *children])), within_s=40.0) == []


def test_daemons_of_a_process_that_is_killed_end_with_all_that_they_have_started(gone):
    code = (
        "import subprocess, time\n"
        "from rl_core.runtime.ray.kin import child_ids, guard_daemons\n"
        "old = subprocess.Popen(['sleep', '600'])\n"
        "before = child_ids()\n"
        "daemon = subprocess.Popen(['bash', '-c', 'setsid sleep 600 & echo $!; wait'], stdout=subprocess.PIPE, text=True)\n"
        "grandchild = daemon.stdout.readline().strip()\n"
        "guard_daemons(before)\n"
        "print(old.pid, daemon.pid, grandchild, flush=True)\n"
        "time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    old, *daemons = map(int, owner.stdout.readline().split())
    time.sleep(2.0)  # the guard has looked
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert gone(daemons, within_s=30.0) == []
    assert gone([old], within_s=0.1) == [old]  # not a daemon: nobody's business
    os.kill(old, signal.SIGKILL)
