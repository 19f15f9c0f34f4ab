import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

LAUNCHER = """
import signal
import sys

# A shell's background jobs, and what they start, ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
from functools import partial
from rl_core.config.ray import RayConfig, RayInitConfig
from rl_core.entry_point import report_errors
from rl_core.errors import ConfigError
from rl_core.runtime.ray.controller import run_on_cluster


def work():
    import os
    print("controller in", os.getcwd(), flush=True)
    return os.getpid()


def refuse():
    raise ConfigError("asked for 4 wheels, found 3")


def wait(mark):
    import time
    try:
        print("waiting", flush=True)
        while True:
            time.sleep(0.05)
    finally:
        open(mark, "w").write("ended its workers")


def main(argv):
    import os
    kind, address, *rest = argv
    function = {"work": work, "refuse": refuse, "wait": partial(wait, *rest)}[kind]
    result = run_on_cluster(RayConfig(ray_init=RayInitConfig(address=address)), function)
    print("result", result != os.getpid())
    return 0


sys.exit(report_errors(main, sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster that the test's own process is not part of."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield cluster.address
    cluster.shutdown()


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    file = tmp_path / "launcher.py"
    file.write_text(LAUNCHER)
    return file


def launch(launcher: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(launcher), *arguments],
        cwd=launcher.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"RAY_AUTH_MODE": "disabled"},
    )


def test_it_runs_in_a_process_of_the_cluster_and_prints_here(address: str, launcher: Path) -> None:
    done = launch(launcher, "work", address)
    assert done.returncode == 0, done.stderr
    assert f"controller in {launcher.parent.resolve()}\n" in done.stdout
    assert "result True" in done.stdout


def test_an_expected_error_arrives_as_itself(address: str, launcher: Path) -> None:
    done = launch(launcher, "refuse", address)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1] == "error: asked for 4 wheels, found 3"
    assert "Traceback" not in done.stderr


def test_an_interrupt_reaches_it_so_that_it_can_end_its_workers(address: str, launcher: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    process = subprocess.Popen(
        [sys.executable, str(launcher), "wait", address, str(mark)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"RAY_AUTH_MODE": "disabled"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "waiting" in line:
            break
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert time.monotonic() - started < 30
    assert mark.read_text() == "ended its workers"


def test_a_cluster_that_does_not_answer_is_named(launcher: Path) -> None:
    done = launch(launcher, "work", "127.0.0.1:1")
    assert done.returncode == 2
    assert "no Ray cluster answers at '127.0.0.1:1'" in done.stderr
