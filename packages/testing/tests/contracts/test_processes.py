from __future__ import annotations

import time
from operator import attrgetter, methodcaller

import pytest
from rl_core.errors import DeadlineError, WorkerError
from rl_testing.contracts.processes import ProcessRanks, shared_pool
from rl_testing.contracts.ranks import run_on_all

pytestmark = pytest.mark.heavy


@pytest.fixture
def ranks():
    """Each rank holds its number."""
    opened = ProcessRanks(2, attrgetter("rank"), deadline_s=1.0)
    yield opened
    opened.close()


def test_every_rank_holds_what_was_built_there(ranks):
    assert run_on_all(ranks, methodcaller("__add__", 10)) == [10, 11]
    assert ranks.run(1, methodcaller("__neg__")) == -1


def test_an_error_is_an_outcome(ranks):
    first, second = ranks.outcomes((5).__floordiv__)
    assert isinstance(first, ZeroDivisionError)
    assert second == 5


def test_ranks_meet():
    collectives = ProcessRanks(2, attrgetter("collective"), deadline_s=1.0)
    assert run_on_all(collectives, methodcaller("all_gather_object", "x")) == [["x", "x"]] * 2
    collectives.close()


def test_processes_are_kept_for_the_next_test(ranks):
    pool = shared_pool(2, 1.0)
    other = ProcessRanks(2, attrgetter("world_size"), deadline_s=1.0)
    assert run_on_all(other, int) == [2, 2]
    assert run_on_all(ranks, int) == [0, 1]
    assert shared_pool(2, 1.0) is pool
    other.close()


def test_a_rank_that_hangs_ends_its_pool_and_the_next_one_starts_anew():
    # Some hours.
    sleeper = ProcessRanks(1, attrgetter("master_port"), deadline_s=0.1)
    (outcome,) = sleeper.outcomes(time.sleep)
    assert isinstance(outcome, DeadlineError)
    assert isinstance(sleeper.outcomes(int)[0], WorkerError)
    sleeper.close()
    fresh = ProcessRanks(1, attrgetter("rank"), deadline_s=0.1)
    assert run_on_all(fresh, int) == [0]
    fresh.close()
