import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from rl_core.errors import DeadlineError, ShapeError, WorkerError
from rl_core.runtime.local_collective import CollectiveHub, PeerFailedError

WORLD = 4


def on_all(program, *, deadline_s=5.0, world_size=WORLD):
    """Run ``program(collective)`` as every rank; results (or exceptions) in rank order."""
    hub = CollectiveHub("actor", deadline_s)

    def run(rank):
        try:
            return program(hub.world(rank, world_size))
        except Exception as error:
            return error

    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(run, range(world_size)))


def test_gather_is_in_rank_order_however_they_come():
    def program(collective):
        time.sleep(0.02 * (WORLD - collective.rank))
        return collective.all_gather_object(collective.rank * 10)

    assert on_all(program) == [[0, 10, 20, 30]] * WORLD


def test_what_arrives_is_the_object_itself_in_a_list_of_ones_own():
    payloads = [object() for _ in range(WORLD)]
    results = on_all(lambda collective: collective.all_gather_object(payloads[collective.rank]))
    assert all(got is sent for got, sent in zip(results[2], payloads, strict=True))
    assert len({id(result) for result in results}) == WORLD


def test_broadcast_sends_from_the_source_only():
    assert on_all(lambda collective: collective.broadcast_object(collective.rank, source=2)) == [2] * WORLD


def test_a_barrier_holds_until_the_last_is_there():
    arrived = []

    def program(collective):
        if collective.rank == 3:
            time.sleep(0.05)
        arrived.append(collective.rank)
        collective.barrier()
        return len(arrived)

    assert on_all(program) == [WORLD] * WORLD


def test_many_rounds_do_not_mix():
    def program(collective):
        return [sum(collective.all_gather_object(step * collective.rank)) for step in range(50)]

    assert on_all(program) == [[step * 6 for step in range(50)]] * WORLD


def test_a_group_of_one_waits_for_nobody():
    assert on_all(lambda collective: collective.all_gather_object("x"), world_size=1) == [["x"]]


def test_subgroups_meet_apart_and_number_their_own_ranks():
    def program(collective):
        pair = collective.subgroup([0, 1] if collective.rank < 2 else [3, 2])
        return pair.rank, pair.world_size, pair.all_gather_object(collective.rank)

    assert on_all(program) == [(0, 2, [0, 1]), (1, 2, [0, 1]), (1, 2, [3, 2]), (0, 2, [3, 2])]


def test_only_members_make_a_subgroup():
    def program(collective):
        if collective.rank % 2:
            return None
        return collective.subgroup([0, 2]).all_gather_object(collective.rank)

    assert on_all(program) == [[0, 2], None, [0, 2], None]


def test_two_subgroups_of_the_same_ranks_are_two():
    def program(collective):
        first, second = collective.subgroup([0, 1]), collective.subgroup([0, 1])
        order = (first, second) if collective.rank == 0 else (second, first)
        # Rank 0 is in the first one while rank 1 is in the second: they do not meet.
        try:
            order[0].barrier(timeout_s=0.05)
        except (DeadlineError, WorkerError):
            return "apart"
        return "met"

    assert on_all(program, world_size=2) == ["apart", "apart"]


def test_a_subgroup_of_a_subgroup_counts_from_its_parent():
    def program(collective):
        if collective.rank == 0:
            return None
        upper = collective.subgroup([1, 2, 3])
        if upper.rank == 0:
            return None
        return upper.subgroup([1, 2]).all_gather_object(collective.rank)

    assert on_all(program) == [None, None, [2, 3], [2, 3]]


def test_a_subgroup_without_oneself_is_refused():
    results = on_all(lambda collective: collective.subgroup([0]).world_size, world_size=2)
    assert results[0] == 1
    assert isinstance(results[1], ShapeError)


def test_who_does_not_come_is_named_and_the_others_are_released():
    def program(collective):
        if collective.rank == 2:
            return "busy"
        return collective.barrier(timeout_s=0.1 if collective.rank == 0 else 30.0)

    started = time.monotonic()
    results = on_all(program)
    assert time.monotonic() - started < 2.0
    assert isinstance(results[0], DeadlineError)
    assert "rank 0 waited 0.1 s in barrier for ranks [2]" in str(results[0])
    assert isinstance(results[1], PeerFailedError)
    assert isinstance(results[3], PeerFailedError)


def test_the_hubs_deadline_holds_where_none_is_given():
    results = on_all(lambda collective: collective.rank or collective.barrier(), deadline_s=0.05)
    assert "waited 0.05 s" in str(results[0])


def test_an_abort_releases_waiters_in_every_subgroup():
    hub = CollectiveHub("actor", 30.0)
    pair = [hub.world(rank, WORLD).subgroup([0, 1]) for rank in range(2)]
    whole = hub.world(2, WORLD)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(pair[0].all_gather_object, 1), pool.submit(whole.barrier)]
        time.sleep(0.05)
        hub.abort("rank 1 said: no memory")
        for future in waiting:
            with pytest.raises(PeerFailedError, match="a peer failed: rank 1 said: no memory"):
                future.result(2.0)
    with pytest.raises(PeerFailedError, match="rank 1 said"):
        pair[1].all_gather_object(2)


def test_members_that_call_different_operations_are_told():
    def program(collective):
        if collective.rank == 0:
            return collective.barrier()
        time.sleep(0.05)
        return collective.all_gather_object(1)

    results = on_all(program, world_size=2)
    assert "rank 1 calls all_gather_object while ranks [0] are in barrier" in str(results[1])
    assert isinstance(results[0], PeerFailedError)


def test_members_that_name_different_sources_are_told():
    results = on_all(lambda collective: collective.broadcast_object(1, source=collective.rank), world_size=2)
    messages = sorted(str(result) for result in results)
    assert any("broadcast_object from rank" in message and "same operations" in message for message in messages)


def test_finished_rounds_are_forgotten():
    hub = CollectiveHub("actor", 5.0)
    collectives = [hub.world(rank, 2) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda collective: [collective.barrier() for _ in range(5)], collectives))
    assert not hub._rounds


def test_who_waits_for_whom_can_be_told():
    hub = CollectiveHub("actor", 5.0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(hub.world(2, 3).subgroup([1, 2]).broadcast_object, None, 0)
        time.sleep(0.05)
        assert hub.waits() == {2: "it waits in broadcast_object from rank 0 for ranks [1]"}
        assert hub.world(1, 3).subgroup([1, 2]).broadcast_object("x") == "x"
        assert waiting.result(2.0) == "x"
    assert hub.waits() == {}
