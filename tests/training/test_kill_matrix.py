"""Whole runs on Ray that lose a worker or their driver: one message, nothing left, and the next run goes on."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from interrupts import heed_interrupts
from rl_core.trainer.checkpoint import CheckpointStore
from rl_testing.models import save_tiny_model
from tiny_runs import arguments, read_metrics, write_inputs

pytestmark = pytest.mark.heavy

RAY = ["trainer.runtime=ray", "trainer.device=cpu", "trainer.n_gpus_per_node=2", "trainer.save_freq=1"]
SLOW_GENERATION = ["data.max_response_length=400"]
SLOW_UPDATE = ["actor_rollout_ref.actor.ppo_epochs=40"]


class Training:
    """A run in a process of its own."""

    def __init__(self, folder, *more):
        self.folder = folder
        self.out, self.err = folder / "stdout", folder / "stderr"
        write_inputs(folder)
        save_tiny_model(folder / "model", model_type="llama")
        self._base = [*RAY, *more]
        self.process, self.family = None, {}

    def start(self, *more):
        command = arguments(self.folder / "model", self.folder, *self._base, *more)
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rl_core.trainer.main_ppo", *command],
                stdout=out,
                stderr=err,
                preexec_fn=heed_interrupts,
            )
        return self

    def until(self, condition, within_s=400.0):
        ends = time.monotonic() + within_s
        while not condition():
            assert self.process.poll() is None, self.err.read_text()
            assert time.monotonic() < ends, self.err.read_text()
            time.sleep(0.02)

    def has_saved(self, step):
        newest = CheckpointStore(self.folder / "run").latest()
        return newest is not None and newest.step >= step

    def workers(self):
        """The worker processes; everything that belongs to the run is remembered."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            self.family[process.pid] = process
        names = {pid: " ".join(process.cmdline()) for pid, process in self.family.items() if process.is_running()}
        return sorted(pid for pid, name in names.items() if name.startswith("ray::WorkerHost"))

    def ends(self, within_s):
        started = time.monotonic()
        code = self.process.wait(within_s + 60.0)
        took = time.monotonic() - started
        print(f"\nended with {code} after {took:.1f} s\n{self.err.read_text()}")
        assert took < within_s
        return code

    def left(self, within_s=15.0):
        started = time.monotonic()
        while (left := list(filter(alive, self.family.values()))) and time.monotonic() < started + within_s:
            time.sleep(0.1)
        print(left or f"nothing was left after {time.monotonic() - started:.1f} s")
        return left

    def goes_on(self):
        """The next run takes one step from the newest checkpoint."""
        newest = CheckpointStore(self.folder / "run").latest()
        assert newest is not None
        steps = newest.step + 1
        assert self.start(f"trainer.total_training_steps={steps}").process.wait(400.0) == 0, self.err.read_text()
        assert [step["step"] for step in read_metrics(self.folder)] == list(range(1, steps + 1))
        assert CheckpointStore(self.folder / "run").latest().step == steps


def alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def training(tmp_path):
    runs = []

    def build(*more):
        runs.append(Training(tmp_path, *more))
        return runs[-1]

    yield build
    for run in runs:
        for process in run.family.values():
            if alive(process):
                process.kill()
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.wait()


@pytest.mark.parametrize(
    ("slow", "method", "phase"),
    [
        pytest.param(SLOW_GENERATION, "generate_sequences", "gen", marks=pytest.mark.slow),
        (SLOW_UPDATE, "update_actor", "update_actor"),
    ],
)
def test_sigkill_of_a_worker(slow, method, phase, training):
    run = training(*slow).start()
    run.until(lambda: run.has_saved(1))
    victim = run.workers()[1]
    time.sleep(1.5)
    os.kill(victim, signal.SIGKILL)
    assert run.ends(within_s=30.0) == 2
    message = run.err.read_text()
    assert message.startswith(f"error: {method} (step ")
    assert f"phase {phase}) on rank " in message
    assert f"pid {victim}): the process is gone. It was killed from outside" in message
    assert not [word for word in ("Traceback", "raylet", "Connection closed", "ERROR") if word in message]
    assert run.left() == []
    run.goes_on()


@pytest.mark.slow
def test_a_stopped_worker(training):
    run = training("trainer.watchdog.silence_s=8", "trainer.watchdog.soft_deadline_s=5").start()
    run.until(lambda: run.has_saved(1))
    victim = run.workers()[1]
    os.kill(victim, signal.SIGSTOP)
    assert run.ends(within_s=40.0) == 2
    message = run.err.read_text()
    assert "watchdog: the run has waited " in message
    assert f"pid {victim}): no heartbeat has come for " in message
    assert message.count("error: ") == 1
    assert run.left() == []
    run.goes_on()


@pytest.mark.slow
def test_ctrl_c(training):
    run = training(*SLOW_UPDATE).start()
    run.until(lambda: run.has_saved(1))
    run.workers()
    run.process.send_signal(signal.SIGINT)
    assert run.ends(within_s=30.0) == 130
    assert run.err.read_text().splitlines() == [
        "interrupted. The same command goes on from the newest checkpoint of its run folder, if it has saved one."
    ]
    assert run.left() == []
    run.goes_on()


@pytest.mark.slow
def test_a_driver_that_is_killed(training):
    run = training(*SLOW_UPDATE).start()
    run.until(lambda: run.has_saved(1))
    run.workers()
    run.process.kill()
    run.process.wait()
    assert run.left(within_s=30.0) == []
    run.goes_on()
