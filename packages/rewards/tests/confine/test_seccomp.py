import errno
import struct
import subprocess
import sys

import pytest
from rl_rewards.confine import kernel, seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000


def judge(machine, number, arguments=(0,) * 6, arch=None):
    """What the filter says of a call, by an interpreter of the few instructions that it uses."""
    data = struct.pack("=IIQ6Q", number, seccomp.AUDIT_ARCH[machine] if arch is None else arch, 0, *arguments)
    code = seccomp.program(machine)
    lines = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    position = accumulator = 0
    while True:
        operation, true, false, value = lines[position]
        position += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x06:
            return value
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            position += true if test else false


def refused(code=errno.EPERM):
    return 0x00050000 | code


@pytest.mark.parametrize(
    ("machine", "number", "arguments", "verdict"),
    [
        ("x86_64", 0, (), ALLOW),  # read
        ("x86_64", 41, (2, 1), refused()),  # socket
        ("aarch64", 198, (2, 1), refused()),
        ("x86_64", 101, (), refused()),  # ptrace
        ("x86_64", 425, (), refused()),  # io_uring_setup
        ("x86_64", 435, (), refused(errno.ENOSYS)),  # clone3
        ("x86_64", 56, (17,), ALLOW),  # clone, as fork does
        ("x86_64", 56, (0x10000000 | 17,), refused()),  # with a user namespace
        ("aarch64", 220, (0x20000 | 17,), refused()),
        ("x86_64", 302, (0,), ALLOW),  # prlimit of oneself
        ("x86_64", 302, (1,), refused()),
        ("x86_64", 203, (0,), ALLOW),  # sched_setaffinity of oneself
        ("x86_64", 203, (1,), refused()),
        ("x86_64", 53, (1, 1 | 0o2000000), ALLOW),  # socketpair of streams, close on exec
        ("x86_64", 53, (1, 2), refused()),  # of datagrams
        ("x86_64", 0x40000000 | 41, (), refused(errno.ENOSYS)),  # the same by another numbering
    ],
)
def test_verdicts(machine, number, arguments, verdict):
    assert judge(machine, number, (*arguments, *(0,) * 6)[:6]) == verdict


def test_calls_of_another_architecture_end_the_process():
    assert judge("x86_64", 0, arch=0x40000003) == KILL


@pytest.mark.heavy
def test_the_kernel_takes_it():
    code = """
import os, socket
from rl_rewards.confine import kernel, seccomp
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
seccomp.install()
os.waitpid(os.fork() or os._exit(0), 0)
socket.socketpair()
try:
    socket.socket()
except PermissionError:
    print("refused")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (run.stdout, run.stderr) == ("refused\n", "")


def test_an_unknown_architecture_is_refused(monkeypatch):
    monkeypatch.setattr(kernel, "machine", lambda: "riscv64")
    assert not seccomp.available()
    with pytest.raises(OSError, match="no filter for riscv64, only for x86_64, aarch64"):
        seccomp.install()
