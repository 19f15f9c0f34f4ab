"""Real workers that die, stop or fail, each in its own way. What a user sees: one error, soon, about the right worker."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from rl_core.errors import DeadlineError, WorkerError
from rl_core.runtime.ray import RayClassWithInitArgs
from rl_core.single_controller.base import Dispatch, Worker, create_colocated_worker_cls, register
from rl_core.single_controller.base.progress import progress

pytestmark = pytest.mark.heavy


class Mortal(Worker):
    """Does one thing on rank 1, and waits for its peers on the others."""

    @register(Dispatch.ONE_TO_ALL)
    def identity(self):
        return os.getpid()

    @register(Dispatch.ONE_TO_ALL)
    def starts(self):
        """Children of the worker: a plain one, and one in a session of its own."""
        children = [subprocess.Popen(["sleep", "600"], start_new_session=apart) for apart in (False, True)]
        return [child.pid for child in children]

    @register(Dispatch.ONE_TO_ALL)
    def dies_in_collective(self):
        if self.rank == 1:
            print("rank 1 is about to go")
            print("and says so", end="", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        self.collective.barrier()

    @register(Dispatch.ONE_TO_ALL)
    def dies_in_gloo(self):
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(4))
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(4))

    @register(Dispatch.ONE_TO_ALL)
    def crashes(self):
        if self.rank == 1:
            print("before the crash", flush=True)
            ctypes.string_at(0)
        self.collective.barrier()

    @register(Dispatch.ONE_TO_ALL)
    def raises(self):
        if self.rank == 1:
            raise ValueError("the gradient is made of cheese")
        self.collective.barrier()

    @register(Dispatch.ONE_TO_ALL)
    def stops(self):
        if self.rank == 1:
            time.sleep(1.0)  # a heartbeat from inside the call
            os.kill(os.getpid(), signal.SIGSTOP)
        self.collective.barrier()

    @register(Dispatch.ONE_TO_ALL)
    def is_late(self, seconds):
        if self.rank == 1:
            time.sleep(seconds)
        self.collective.barrier()

    @register(Dispatch.ONE_TO_ALL)
    def tells_secrets(self):
        print(dict(os.environ), flush=True)
        raise RuntimeError(f"no access with {os.environ['SERVICE_PASS']}")

    @register(Dispatch.ONE_TO_ALL)
    def counts(self, lines):
        for line in range(lines):
            print(f"line {line} of {self.rank}", file=sys.stderr if line % 2 else sys.stdout)

    @register(Dispatch.ONE_TO_ALL, blocking=False)
    def makes(self, seconds, how):
        time.sleep(seconds)
        if how == "raise":
            raise ValueError("nothing was made")
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return 1

    @register(Dispatch.ONE_TO_ALL)
    def takes(self, made):
        return made


@contextmanager
def within(seconds):
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    print(f"took {took:.1f} s")
    assert took < seconds


def failing(call, *arguments):
    with progress(step=3, phase="update_actor"), pytest.raises((WorkerError, DeadlineError)) as caught:
        call(*arguments)
    print(caught.value)
    return str(caught.value)


def test_sigkill_in_a_collective(watched, gone):
    run = watched()
    actor = run.group(Mortal, 2)
    pids = actor.identity()
    children = [pid for pair in actor.starts() for pid in pair]
    with within(15.0):
        message = failing(actor.dies_in_collective)
    member = actor.members[1]
    assert message.startswith(
        f"dies_in_collective (step 3, phase update_actor) on rank 1 of 2 of worker group 'actor' (node {member.node_ip}, "
        f"pid {pids[1]}): the process is gone. It was killed from outside (SIGKILL"
    )
    assert "  | rank 1 is about to go\n  | and says so" in message
    assert "Connection closed" not in message
    with pytest.raises(
        WorkerError, match=r"cannot run identity: the run has failed. First failure: dies_in_collective"
    ):
        actor.identity()
    with within(15.0):
        actor.shutdown()
    assert gone(pids + children) == []


def test_an_exception_on_one_rank(watched, gone):
    run = watched()
    actor = run.group(Mortal, 2)
    pids = actor.identity()
    with within(10.0):
        message = failing(actor.raises)
    assert message.startswith("raises (step 3, phase update_actor) on rank 1 of 2 of worker group 'actor' (node ")
    assert message.endswith("failed: ValueError: the gradient is made of cheese")
    with within(15.0):
        actor.shutdown()
    assert gone(pids) == []


def test_an_exception_of_a_call_that_was_only_started(watched):
    actor = watched().group(Mortal, 2)
    with within(10.0):
        message = failing(lambda: [future.result() for future in actor.raises.start()])
    assert message.endswith("failed: ValueError: the gradient is made of cheese")
    with within(15.0):
        actor.shutdown()


@pytest.mark.slow
class TestMatrix:
    def test_sigkill_in_a_process_group_of_torch(self, watched):
        actor = watched().group(Mortal, 2)
        with within(15.0):
            message = failing(actor.dies_in_gloo)
        assert "on rank 1 of 2" in message
        assert "the process is gone" in message

    def test_a_crash_in_native_code_shows_its_stack(self, watched):
        actor = watched().group(Mortal, 2)
        with within(15.0):
            message = failing(actor.crashes)
        assert "on rank 1 of 2" in message
        assert "It crashed in native code (SIGSEGV)" in message
        assert "  | before the crash\n  | *** SIGSEGV received" in message
        assert "in crashes" in message

    @pytest.mark.parametrize("method", ["stops", "stopped between calls"])
    def test_a_stopped_worker_is_found_by_its_silence(self, method, watched, gone):
        run = watched(silence_s=5.0, soft_deadline_s=3.0)
        actor = run.group(Mortal, 2)
        pids = actor.identity()
        if method == "stops":
            call = actor.stops
        else:
            os.kill(pids[1], signal.SIGSTOP)
            call = actor.identity
        with within(15.0):
            message = failing(call)
        assert f"on rank 1 of 2 of worker group 'actor' (node {actor.members[1].node_ip}, pid {pids[1]})" in message
        assert "(trainer.watchdog.silence_s): the process is stopped" in message
        report = run.report()
        assert "watchdog: the run has waited " in report
        if method == "stops":
            assert "It was last seen in stops (step 3, phase update_actor); its stack was:" in message
            assert "time.sleep(1.0)" in message
            assert "In a collective operation: actor/0. They wait for: actor/1." in report
            assert "self.collective.barrier()" in report
        with within(15.0):
            actor.shutdown()
        assert gone(pids) == []

    def test_an_idle_worker_dies_while_another_group_works(self, watched):
        run = watched()
        actor, critic = run.group(Mortal, 1, name="actor"), run.group(Mortal, 1, name="critic")
        [pid] = critic.identity()
        threading.Timer(1.0, os.kill, (pid, signal.SIGKILL)).start()
        with within(15.0):
            message = failing(actor.makes(40.0, "return")[0].result)
        assert message.startswith("between two calls on rank 0 of 1 of worker group 'critic'")
        assert "the process is gone. It was killed from outside" in message

    def test_an_idle_worker_dies_between_two_calls(self, watched):
        run = watched()
        actor = run.group(Mortal, 2)
        os.kill(actor.identity()[1], signal.SIGKILL)
        time.sleep(8.0)
        message = failing(actor.identity)
        assert message.startswith("between two calls on rank 1 of 2 of worker group 'actor'")
        assert message.count("the process is gone") == 1

    @pytest.mark.parametrize(("how", "reason"), [("raise", "ValueError: nothing was made"), ("die", "process is gone")])
    def test_who_waits_for_the_result_of_a_failed_worker_is_not_blamed(self, how, reason, watched):
        run = watched()
        maker, taker = run.group(Mortal, 1, name="maker"), run.group(Mortal, 1, name="taker")
        made = maker.makes(1.0, how)
        with within(15.0):
            message = failing(taker.takes, made[0])
        assert message.startswith("makes on rank 0 of 1 of worker group 'maker'")
        assert reason in message

    def test_a_call_that_takes_too_long(self, watched):
        actor = watched().group(Mortal, 2, deadline_s=4.0)
        with within(10.0):
            message = failing(actor.is_late, 30.0)
        assert "did not finish within 4 s (trainer.worker_deadline_s)" in message
        assert "In a collective operation: actor/0. They wait for: actor/1." in message
        assert "time.sleep(seconds)" in message

    def test_a_collective_that_takes_too_long(self, watched):
        actor = watched(collective_deadline_s=3.0).group(Mortal, 2)
        with within(12.0):
            message = failing(actor.is_late, 30.0)
        assert "on rank 0 of 2" in message
        assert "rank 0 waited in barrier 3 s for ranks [1]" in message
        assert "time.sleep(seconds)" in message

    def test_a_constructor_that_hangs(self, watched):
        class Sleeper(Worker):
            def __init__(self, context):
                super().__init__(context)
                time.sleep(600.0 if context.rank == 1 else 0.0)

        with pytest.raises(DeadlineError, match=r"__init__ on rank 1 of 2.*within 40 s \(trainer\.ray_wait") as caught:
            watched(start_deadline_s=40.0).group(Sleeper, 2)
        assert "time.sleep(600.0 if context.rank == 1" in str(caught.value)

    def test_secrets_are_shown_nowhere(self, watched):
        secrets = {"SERVICE_PASS": "hunter2-and-more", "SERVICE_CERT": "first line\nsecond line"}
        run = watched(secrets)
        actor = run.group(Mortal, 1)
        with pytest.raises(WorkerError) as caught:
            actor.tells_secrets()
        actor.shutdown()
        text = "".join(path.read_text() for path in run.folder.rglob("*") if path.is_file())
        shown = f"{text}{caught.value}{caught.value.__cause__}{caught.value.__notes__}"
        assert shown.count("<redacted>") >= 4
        assert "no access with <redacted>" in str(caught.value)
        assert not [secret for secret in ("hunter2", "first line", "second line") if secret in shown]

    def test_all_that_was_printed_arrives_in_order(self, watched):
        run = watched()
        actor = run.group(Mortal, 2)
        actor.counts(20_000)
        actor.shutdown()
        for rank in (0, 1):
            lines = [line for line in run.log(f"actor-rank{rank}").splitlines() if line.startswith("line ")]
            assert sorted(lines) == sorted(f"line {line} of {rank}" for line in range(20_000))
            for parity in (0, 1):
                numbers = [int(line.split()[1]) for line in lines]
                own = [number for number in numbers if number % 2 == parity]
                assert own == sorted(own)

    def test_a_role_of_a_fused_worker_is_named(self, watched):
        roles = {role: RayClassWithInitArgs(Mortal) for role in ("actor", "ref")}
        views = watched().group(create_colocated_worker_cls(roles), 2, name="actor+ref").spawn(["actor", "ref"])
        message = failing(views["ref"].dies_in_collective)
        assert message.startswith("ref.dies_in_collective (step 3, phase update_actor) on rank 1 of 2")
