"""What code could try, and a small world around it in which success shows.

Each attack prints HARM, or changes the world, where it succeeds. Those that are safe are also run without the sandbox, so
that a test can tell a wall from an attack that never worked.

As a script: prints the table of `docs/rewards.md`, from a run of every attack.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from rl_rewards.sandbox import Limits, SandboxResult, run_code

SECRET_NAME, SECRET = "RL_TEST_SECRET", "wXyZ-not-for-everybody"
TOKEN = "survivor-of-the-sandbox"
LIMITS = Limits(wall_s=4.0, cpu_s=2.0, memory_mb=256, file_mb=16, scratch_mb=32, processes=16, output_kb=64)


class World:
    """Files, listeners and a process that nobody in a sandbox should reach."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rl-world-", dir="/tmp"))
        self.folder.chmod(0o777)
        self.secret = self.folder / ".ssh" / "id_ed25519"
        self.secret.parent.mkdir()
        self.secret.write_text(SECRET)
        self.victim = self.folder / "victim"
        self.victim.write_text("precious")
        self.victim.chmod(0o666)
        self.new_file = self.folder / "new"
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.folder / "s"))
        os.chmod(self.folder / "s", 0o777)
        self.unix.listen()
        self.sleeper = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        for listener in (self.tcp, self.unix):
            threading.Thread(target=self._greet, args=(listener,), daemon=True).start()

    @staticmethod
    def _greet(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = listener.accept()
                connection.sendall(SECRET.encode())
                connection.close()

    def fill_in(self, code: str) -> str:
        """The code with the names of this world's things."""
        values = {
            "SECRET_FILE": repr(str(self.secret)),
            "SECRET_NAME": repr(SECRET_NAME),
            "VICTIM": repr(str(self.victim)),
            "NEW_FILE": repr(str(self.new_file)),
            "FOLDER": repr(str(self.folder)),
            "TCP_PORT": str(self.tcp.getsockname()[1]),
            "UNIX_PATH": repr(str(self.folder / "s")),
            "SLEEPER": str(self.sleeper.pid),
            "MY_PID": str(os.getpid()),
            "TOKEN": TOKEN,
        }
        return re.sub(r"\$(\w+)", lambda match: values[match[1]], code)

    def harm(self) -> list[str]:
        """What has changed."""
        changes = {
            "a file is gone": not self.victim.exists(),
            "a file was changed": self.victim.exists() and self.victim.read_text() != "precious",
            "a file was made": self.new_file.exists(),
            "a process was ended": self.sleeper.poll() is not None,
            "a process is left": bool(survivors()),
        }
        return [what for what, happened in changes.items() if happened]

    def close(self) -> None:
        """End and remove everything."""
        self.sleeper.kill()
        self.sleeper.wait()
        for process in survivors():
            os.kill(process, 9)
        self.tcp.close()
        self.unix.close()
        shutil.rmtree(self.folder)


def survivors() -> list[int]:
    """Processes that an attack has left."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if TOKEN.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@dataclass(frozen=True)
class Attack:
    """One attempt.

    Attributes:
        what: for the table.
        wall: what stops it, for the table.
        outcome: how it ends in the sandbox, for the table: the status, and the exception if there was one.
        code: the program.
        is_safe: it may run without the sandbox, and then succeeds.
    """

    what: str
    wall: str
    outcome: str
    code: str = field(repr=False)
    is_safe: bool = True


ATTACKS = [
    Attack(
        "reading a key in the home folder",
        "its own file tree",
        "error: FileNotFoundError",
        "print('HARM', open($SECRET_FILE).read())",
    ),
    Attack(
        "reading a secret in the environment",
        "an environment of its own",
        "error: KeyError",
        "import os; print('HARM', os.environ[$SECRET_NAME])",
    ),
    Attack(
        "reading the environment of another process",
        "no `/proc`",
        "error: FileNotFoundError",
        "print('HARM', open('/proc/$MY_PID/environ').read())",
    ),
    Attack(
        "reading `/etc/passwd`",
        "its own file tree",
        "error: FileNotFoundError",
        "print('HARM', open('/etc/passwd').read())",
    ),
    Attack(
        "writing outside of the scratch folder",
        "its own file tree",
        "error: FileNotFoundError",
        "open($NEW_FILE, 'w').write('x')",
    ),
    Attack(
        "changing the interpreter's library",
        "read-only mounts, Landlock",
        "error: OSError",
        "import os; p = os.path.dirname(os.__file__) + '/rl_attack.py'; open(p, 'x').close(); os.remove(p); print('HARM')",
    ),
    Attack("deleting files", "its own file tree", "error: FileNotFoundError", "import os; os.remove($VICTIM)"),
    Attack(
        "a symbolic link out of the scratch folder",
        "its own file tree",
        "error: FileNotFoundError",
        "import os; os.symlink($FOLDER, 'l'); open('l/victim', 'w').write('x')",
    ),
    Attack(
        "connecting to a TCP port of this machine",
        "system call filter, no network",
        "error: PermissionError",
        "import socket; s = socket.create_connection(('127.0.0.1', $TCP_PORT)); print('HARM', s.recv(99))",
    ),
    Attack(
        "connecting to a local socket",
        "system call filter, its own file tree",
        "error: PermissionError",
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect($UNIX_PATH); print('HARM', s.recv(99))",
    ),
    Attack(
        "killing another process",
        "process namespace",
        "error: ProcessLookupError",
        "import os, signal; os.kill($SLEEPER, signal.SIGKILL)",
    ),
    Attack(
        "tracing a process",
        "system call filter",
        "error: PermissionError",
        """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if child == 0:
    time.sleep(30)
    os._exit(0)
if libc.ptrace(16, child, None, None) != 0:
    raise PermissionError(ctypes.get_errno())
print("HARM")
os.kill(child, 9)
""",
    ),
    Attack(
        "new namespaces, for mounting",
        "system call filter",
        "error: PermissionError",
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000) != 0 and libc.unshare(0x20000) != 0:
    raise PermissionError(ctypes.get_errno())
print("HARM")
""",
    ),
    Attack(
        "mounting over a folder",
        "system call filter, no capabilities",
        "error: PermissionError",
        """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"x", os.getcwd().encode(), b"tmpfs", 0, None) != 0:
    raise PermissionError(ctypes.get_errno())
print("HARM")
""",
        is_safe=False,
    ),
    Attack(
        "ending or slowing down its supervisor",
        "process namespace, Landlock",
        "ok",
        """
import os, signal
for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, signal.SIGXCPU):
    for process in (1, os.getppid()):
        try:
            os.kill(process, number)
        except PermissionError:
            pass
for slow_down in (os.sched_setaffinity, os.sched_setscheduler, os.setpriority):
    try:
        if slow_down is os.sched_setaffinity:
            slow_down(1, {0})
        elif slow_down is os.sched_setscheduler:
            slow_down(1, os.SCHED_IDLE, os.sched_param(0))
        else:
            slow_down(os.PRIO_USER, 0, 19)
        print("HARM")
    except PermissionError:
        pass
print("still supervised")
""",
        is_safe=False,
    ),
    Attack(
        "killing every process it can see",
        "process namespace",
        "error: ProcessLookupError",
        "import os; os.kill(-1, 9)",
        is_safe=False,
    ),
    Attack(
        "a fork bomb, at 200 processes",
        "number of processes",
        "error: BlockingIOError",
        """
import os
gate, opens = os.pipe()
for made in range(200):
    if os.fork() == 0:
        os.close(opens)
        os.read(gate, 1)  # ends with the parent
        os._exit(0)
print("HARM")
""",
    ),
    Attack(
        "a fork bomb that never gives up",
        "number of processes, deadline",
        "timeout",
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        is_safe=False,
    ),
    Attack(
        "a process that moves away and stays",
        "process namespace",
        "ok",
        """
import os, subprocess, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(60)  # $TOKEN"])
    os._exit(0)
time.sleep(0.5)
""",
    ),
    Attack(
        "taking 600 MB", "address space", "memory", "x = bytearray(600 << 20); x[::4096] = x[::4096]; print('HARM')"
    ),
    Attack(
        "taking 600 MB with six processes",
        "memory of all processes",
        "memory",
        """
import os, time
children = []
for _ in range(6):
    child = os.fork()
    if child == 0:
        x = bytearray(b"x") * (100 << 20)
        time.sleep(1)
        os._exit(0)
    children.append(child)
if not any(os.waitpid(child, 0)[1] for child in children):
    print("HARM")
""",
    ),
    Attack(
        "filling the disk, 100 MB in small files",
        "scratch folder of limited size",
        "error: OSError",
        """
import os, tempfile
with tempfile.TemporaryDirectory() as folder:
    for number in range(50):
        with open(f"{folder}/{number}", "wb") as file:
            file.write(bytes(2 << 20))
print("HARM")
""",
    ),
    Attack(
        "one file of 30 MB",
        "size of a file",
        "error: OSError",
        "import tempfile\nwith tempfile.TemporaryFile() as f:\n    f.write(bytes(30 << 20))\n    f.flush()\nprint('HARM')",
    ),
    Attack("an endless loop", "processor time", "timeout", "while True:\n    pass", is_safe=False),
    Attack("sleeping", "deadline", "timeout", "import time; time.sleep(3600)", is_safe=False),
    Attack(
        "sleeping, deaf to every signal",
        "deadline",
        "timeout",
        """
import signal, time
for number in set(range(1, 65)) - {9, 19, 32, 33}:
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(3600)
""",
        is_safe=False,
    ),
    Attack("`10**10**10`", "processor time, address space", "timeout", "print(10**10**10)", is_safe=False),
    Attack(
        "a catastrophic regular expression",
        "processor time",
        "timeout",
        "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')",
        is_safe=False,
    ),
    Attack(
        "printing for ever", "size of the output", "output_limit", "while True:\n    print('x' * 999)", is_safe=False
    ),
    Attack(
        "printing for ever, to stderr",
        "size of the output",
        "output_limit",
        "import sys\nwhile True:\n    sys.stderr.write('x' * 999)",
        is_safe=False,
    ),
    Attack(
        "a crash in native code", "a process of its own", "killed", "import ctypes; ctypes.string_at(0)", is_safe=False
    ),
    Attack("exiting without a word", "a process of its own", "ok", "import os; os._exit(0)", is_safe=False),
]


def confined(attack: Attack, world: World) -> SandboxResult:
    """The attack in the sandbox."""
    return run_code(world.fill_in(attack.code), limits=LIMITS)


def unconfined(attack: Attack, world: World) -> str:
    """What the attack prints without the sandbox."""
    command = [sys.executable, "-S", "-c", world.fill_in(attack.code)]
    with tempfile.TemporaryFile() as output:  # unlike a pipe, it does not wait for what the attack leaves behind
        subprocess.run(command, stdout=output, timeout=60, cwd=world.folder, check=False)
        output.seek(0)
        return output.read().decode(errors="replace")


def outcome(result: SandboxResult) -> str:
    """How it ended, as the table says it."""
    last_line = result.stderr.rstrip().rpartition("\n")[2]
    named = re.match(r"\w+", last_line)
    return f"error: {named[0]}" if result.status == "error" and named else result.status


def table(outcomes: dict[str, str]) -> str:
    """Rows for the page: attack, wall, outcome."""
    rows = [f"| {attack.what} | {attack.wall} | `{outcomes[attack.what]}` |" for attack in ATTACKS]
    return "\n".join(["| attack | what stops it | outcome |", "|---|---|---|", *rows])


if __name__ == "__main__":
    os.environ[SECRET_NAME] = SECRET
    seen = {}
    for attack in ATTACKS:
        world = World()
        result = confined(attack, world)
        seen[attack.what] = outcome(result)
        if world.harm() or "HARM" in result.stdout or seen[attack.what] != attack.outcome:
            sys.stderr.write(f"{attack.what}: {world.harm()} {result}\n")
        world.close()
    sys.stdout.write(table(seen) + "\n")
