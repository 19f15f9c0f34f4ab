import gc

import pytest
from rl_core.errors import WorkerError
from rl_core.runtime.ray.health import Member, RunHealth
from rl_core.single_controller.base.progress import Progress


def member(rank, group="actor"):
    return Member(f"{group}/{rank}", group, rank, 2, "id", "10.0.0.7", 100 + rank, 0.0, None)


def test_the_first_failure_stays_and_is_told():
    health = RunHealth()
    assert health.failure is None
    with pytest.raises(RuntimeError, match="there is none"):
        health.told()
    first, second = WorkerError("first"), WorkerError("second")
    assert health.fail(first) is first
    assert health.fail(second) is first
    assert not health.is_told
    assert health.told() is first
    assert health.is_told


def test_members_are_watched_until_they_are_dismissed():
    health = RunHealth()
    health.enrol([member(0), member(1)])
    health.dismiss([member(0), member(0, "critic")])
    assert [found.name for found in health.members()] == ["actor/1"]


def test_calls_are_pending_until_they_return_or_are_forgotten_the_oldest_first():
    health = RunHealth()
    for number in range(4):
        health.called(number, member(number % 2), f"method{number}", Progress(1, "gen"))
    health.returned([1, 17])
    health.forget(2)
    gc.collect()
    assert [(ref, call.method) for ref, call in health.pending()] == [(0, "method0"), (3, "method3")]
    assert str(health.pending()[1][1]) == (
        "method3 (step 1, phase gen) on rank 1 of 2 of worker group 'actor' (node 10.0.0.7, pid 101)"
    )
