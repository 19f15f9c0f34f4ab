from __future__ import annotations

import threading
import time

import pytest
from rl_core.errors import DeadlineError, RlError
from rl_testing.contracts.ranks import ThreadRanks, run_on_all


@pytest.fixture
def ranks():
    opened = ThreadRanks(3, lambda context: context, deadline_s=0.5)
    yield opened
    opened.close()


def test_ranks_meet(ranks):
    gathered = run_on_all(ranks, lambda context: context.collective.all_gather_object(context.rank * 10))
    assert gathered == [[0, 10, 20]] * 3


def test_each_rank_has_a_thread_of_its_own(ranks):
    names = run_on_all(ranks, lambda context: threading.current_thread().name)
    assert len(set(names)) == 3
    assert run_on_all(ranks, lambda context: threading.current_thread().name) == names
    assert ranks.run(1, lambda context: (context.rank, threading.current_thread().name)) == (1, names[1])


def test_an_error_is_an_outcome(ranks):
    def fail_on_one(context):
        if context.rank == 1:
            msg = "planted"
            raise ValueError(msg)
        return context.rank

    outcomes = ranks.outcomes(fail_on_one)
    assert [outcomes[0], outcomes[2]] == [0, 2]
    assert isinstance(outcomes[1], ValueError)
    with pytest.raises(ValueError, match="planted"):
        run_on_all(ranks, fail_on_one)


def test_who_waits_in_vain_is_told(ranks):
    def wait(context):
        return None if context.rank == 0 else context.collective.barrier()

    outcomes = ranks.outcomes(wait)
    assert outcomes[0] is None
    assert all(isinstance(outcome, RlError) for outcome in outcomes[1:])


def test_a_rank_that_hangs_is_named():
    release = threading.Event()
    ranks = ThreadRanks(2, lambda context: context.rank, deadline_s=0.1)
    try:
        started = time.monotonic()
        outcomes = ranks.outcomes(lambda rank: release.wait(20) if rank else rank)
        assert time.monotonic() - started < 10
        assert outcomes[0] == 0
        assert isinstance(outcomes[1], DeadlineError)
        assert "rank 1" in str(outcomes[1])
    finally:
        release.set()
        ranks.close()


def test_what_was_built_is_disposed_of():
    disposed = []
    ranks = ThreadRanks(2, lambda context: context.rank, dispose=disposed.append)
    ranks.close()
    assert sorted(disposed) == [0, 1]


def test_a_build_that_fails_raises():
    def build(context):
        msg = f"no device for rank {context.rank}"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="no device for rank 0"):
        ThreadRanks(2, build)
