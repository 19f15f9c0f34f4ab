import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rl_rewards.sandbox import LANGUAGES, Language, Limits, Sandbox, SandboxError, python, run_code

pytestmark = [pytest.mark.heavy, pytest.mark.sandbox]
LIMITS = Limits(wall_s=20.0, processes=16)


def run(code, **options):
    return run_code(code, limits=options.pop("limits", LIMITS), **options)


@pytest.fixture(autouse=True)
def others():
    """Processes below this one that are none of the test's: other tests of the session keep some."""
    OTHERS.clear()
    OTHERS.update(descendants())


OTHERS = set()


def children():
    """Processes that this test has started, wherever they have moved."""
    return [process for process in descendants() if process not in OTHERS]


def descendants():
    """Processes below this one."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    found, level = [], [os.getpid()]
    while level:
        level = [process for process, parent in parents.items() if parent in level]
        found += level
    return found


def test_a_program_reads_and_writes():
    result = run("import sys; print(sys.stdin.read() + 'ü'); sys.stderr.write('e')", stdin="a" * 300_000 + "é")
    assert (result.status, result.exit_code, result.signal) == ("ok", 0, None)
    assert result.stdout == "a" * 300_000 + "éü\n"
    assert result.stderr == "e"
    assert 0 < result.cpu_seconds < 5
    assert 1 < result.memory_mb < 200


def test_it_sees_its_own_small_world():
    result = run(
        """
import os
print(sorted(os.environ), os.getcwd(), os.listdir("."), os.path.exists("/proc"), os.path.exists("/home"))
def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
print([fd for fd in range(64) if is_open(fd)], os.getuid() != 0, os.getpid())
"""
    )
    environment = ["HOME", "LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "PYTHONHASHSEED", "TMPDIR"]
    # One more descriptor is the program's file, which Python keeps open.
    first, second = result.stdout.splitlines()
    assert first == f"{environment} /box ['main.py'] False False"
    assert second in ("[0, 1, 2] True 2", "[0, 1, 2, 3] True 2")


def test_ordinary_programs_run():
    assert run("import asyncio\nasync def f(): return 5\nprint(asyncio.run(f()))").stdout == "5\n"
    threads = "from concurrent.futures import ThreadPoolExecutor as P\nwith P(4) as p: print(sum(p.map(int, '123')))"
    assert run(threads).stdout == "6\n"
    child = (
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(7)'], capture_output=True).stdout)"
    )
    assert run(child).stdout == "b'7\\n'\n"
    assert (
        run("open('a', 'w').write('x'); import tempfile; tempfile.mkdtemp(); print(open('a').read())").stdout == "x\n"
    )


@pytest.mark.parametrize(
    ("code", "status", "exit_code", "number"),
    [
        ("raise ValueError", "error", 1, None),
        ("import sys; sys.exit(3)", "error", 3, None),
        ("raise MemoryError", "memory", 1, None),
        ("import os; os.kill(os.getpid(), 15)", "killed", None, 15),
        ("def f(:", "error", 1, None),
        ("x = '\\0'\nprint(\"\0\")", "error", 1, None),
    ],
)
def test_how_it_ended(code, status, exit_code, number):
    result = run(code)
    assert (result.status, result.exit_code, result.signal) == (status, exit_code, number)


def test_runs_of_one_sandbox_do_not_know_each_other():
    code = """
import os, sys
print(sorted(os.listdir(".")), input())
open("left", "w").write("x")
os.chmod(".", 0)
if os.fork() == 0:
    import time
    time.sleep(60)
"""
    with Sandbox(code, limits=LIMITS) as box:
        outputs = [box.run(f"{number}\n").stdout for number in range(3)]
        assert len(children()) == 2  # launcher and supervisor
    assert outputs == [f"['main.py'] {number}\n" for number in range(3)]
    assert children() == []


def test_a_run_may_have_less_time_than_the_limits_but_not_more():
    with Sandbox("import time; time.sleep(60)", limits=Limits(wall_s=5.0)) as box:
        assert box.run(wall_s=0.3).seconds < 4.0
        assert 4.9 < box.run(wall_s=50).seconds < 30


def test_works_from_threads_at_the_same_time():
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda number: run(f"print({number})").stdout, range(8)))
    assert results == [f"{number}\n" for number in range(8)]
    assert children() == []


def test_the_thread_that_asked_may_be_any():
    found = []
    thread = threading.Thread(target=lambda: found.append(run("print(1)").status))
    thread.start()
    thread.join()
    assert found == ["ok"]


def test_when_the_asking_process_is_killed_everything_ends():
    code = """
from rl_rewards.sandbox import Limits, run_code
print("go", flush=True)
run_code("import time; time.sleep(60)", limits=Limits(wall_s=60))
"""
    asking = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert asking.stdout.readline() == b"go\n"
    end = time.monotonic() + 20
    while time.monotonic() < end:
        below = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
        running = [line.split()[0] for line in below.splitlines() if "/box/main.py" in line]
        if running:
            break
    assert running
    asking.send_signal(signal.SIGKILL)
    asking.wait()
    asking.stdout.close()
    end = time.monotonic() + 10
    while any(Path("/proc", pid).exists() for pid in running) and time.monotonic() < end:
        time.sleep(0.05)
    assert [pid for pid in running if Path("/proc", pid).exists()] == []


def test_a_supervisor_that_ends_costs_the_run_not_the_reward():
    with Sandbox("print(1)", limits=LIMITS) as box:
        assert box.run().status == "ok"
        for process in children():
            os.kill(process, signal.SIGKILL)
        assert box.run().status == "killed"


def test_a_launcher_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr("rl_rewards.sandbox.local.interpreter", lambda: "/bin/false")
    with pytest.raises(SandboxError, match="launcher of the sandbox has ended"):
        run("print(1)")


def test_an_interpreter_that_is_not_there_is_an_error():
    language = Language(file_name="a", command=("/no/such/program", "{file}"))
    with Sandbox("x", limits=LIMITS, language=language) as box, pytest.raises(SandboxError, match="No such file"):
        box.run()


def test_another_language(monkeypatch):
    shell = Language(
        file_name="main.sh", command=(os.path.realpath("/bin/sh"), "{file}"), folders=lambda: ("/bin", "/usr/bin")
    )
    monkeypatch.setitem(LANGUAGES, "sh", lambda: shell)
    assert run("read name; echo hello $name", stdin="there\n", language="sh").stdout == "hello there\n"
    with pytest.raises(SandboxError, match="was asked to run 'cobol', but knows python, sh"):
        run("", language="cobol")


def test_packages_can_be_allowed(tmp_path):
    (tmp_path / "a_package.py").write_text("value = 5")
    tmp_path.chmod(0o755)
    code = "import a_package; print(a_package.value, __name__)"
    assert run(code, language=python((str(tmp_path),))).stdout == "5 __main__\n"
    assert "ModuleNotFoundError" in run(code).stderr


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "1", None])
def test_limits_are_positive_numbers(value):
    with pytest.raises(SandboxError, match="limit wall_s of the sandbox is"):
        Limits(wall_s=value)
