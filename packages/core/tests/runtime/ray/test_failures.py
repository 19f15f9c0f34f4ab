import time

import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from rl_core.errors import DeadlineError, WorkerError
from rl_core.runtime.ray.failures import dead, describe, exit_reason, root_cause
from rl_core.runtime.ray.health import Member, Pending
from rl_core.runtime.ray.host import RemoteFailure
from rl_core.single_controller.base.progress import Progress

WHO = "rank 1 of 2 of worker group 'actor' (node 10.0.0.7, pid 101)"
PENDING = Pending(
    Member("actor/1", "actor", 1, 2, "id", "10.0.0.7", 101, 0.0, None), "update", Progress(3, "gen"), time.monotonic()
)


def remote(error):
    """What ``ray.get`` raises for a worker's exception."""
    try:
        raise error
    except Exception as raised:
        failure = RemoteFailure.of(raised)
    return RayTaskError("call", "traceback", failure)


def described(error, lines=(), redact=str):
    return describe(PENDING, error, last_lines=lambda: list(lines), redact=redact)


def test_an_exception_of_the_worker_with_its_traceback_as_a_note():
    found = described(remote(ValueError("cheese")))
    assert str(found) == f"update (step 3, phase gen) on {WHO} failed: ValueError: cheese"
    assert isinstance(found, WorkerError)
    assert isinstance(found.__cause__, RemoteFailure)
    assert "raise error" in found.__notes__[0]


def test_an_expected_error_needs_no_traceback():
    assert not hasattr(described(remote(WorkerError("the batch is empty"))), "__notes__")


def test_secrets_are_taken_out_of_message_cause_and_traceback():
    found = described(remote(ValueError("no access with hunter2")), redact=lambda text: text.replace("hunter2", "***"))
    shown = f"{found}{found.__cause__!r}{found.__cause__.trace}{found.__notes__}"
    assert "hunter2" not in shown
    assert shown.count("***") >= 4


def test_a_dead_worker_with_its_last_words():
    found = described(ActorDiedError(), ["about to allocate", "*** SIGSEGV received at time=1 on cpu 0 ***"])
    assert str(found) == (
        f"update (step 3, phase gen) on {WHO}: the process is gone. It crashed in native code (SIGSEGV).\n"
        "  Its last lines of output:\n  | about to allocate\n  | *** SIGSEGV received at time=1 on cpu 0 ***"
    )
    assert str(dead("x", "Why.", [])) == "x: the process is gone. Why. It had printed nothing."
    assert str(dead("x", "Why.", list("abcdefghijklmnopqrst"))).count("  | ") == 15


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "Worker exit type: SYSTEM_ERROR Worker exit detail: x. connection error code 2. End of file.",
            "It was killed",
        ),
        ("The node was running low on memory, so", "Ray ended it because its node ran out of memory"),
        ("The actor is dead because its node has died. missed too many heartbeats", "Its node is gone"),
        ("exit detail: The worker quit by itself.", "Ray says: The worker quit by itself."),
    ],
)
def test_exit_reasons(text, reason):
    assert exit_reason(RuntimeError(text)).startswith(reason)


@pytest.mark.parametrize(
    "symptom",
    [
        DeadlineError("rank 0 waited"),
        RuntimeError("[gloo/transport/tcp/pair.cc:538] Connection closed by peer [10.0.0.7]:1234"),
        RuntimeError(
            "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete"
        ),
        ActorDiedError(),
    ],
)
def test_what_a_peer_saw_comes_last(symptom):
    collateral = remote(symptom)
    cause = remote(ValueError("cheese"))
    assert root_cause({"a": collateral, "b": cause}) == "b"
    assert root_cause({"a": collateral, "b": cause, "c": ActorDiedError()}) == "c"
    assert root_cause({"a": cause, "b": remote(KeyError("x"))}) == "a"


def test_a_crash_report_is_shown_without_its_list_of_modules_and_its_echo():
    lines = [
        "*** SIGABRT received at time=1 on cpu 0 ***",
        "[2026-01-01 00:00:00,000 E 7 7] logging.cc:474: *** SIGABRT received at time=1 on cpu 0 ***",
        "Fatal Python error: Aborted",
        "Extension modules: a, b (total: 2)",
    ]
    text = str(dead("x", "Why.", lines))
    assert "It crashed in native code (SIGABRT)." in text
    assert text.splitlines()[2:] == [
        "  | *** SIGABRT received at time=1 on cpu 0 ***",
        "  | Fatal Python error: Aborted",
    ]


def test_a_failure_passed_on_to_another_worker_is_that_workers_no_more():
    passed = RayTaskError("call", "traceback", remote(ValueError("cheese")).cause.passed_on())
    assert root_cause({"a": passed, "b": remote(ValueError("cheese"))}) == "b"
