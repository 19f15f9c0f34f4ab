from __future__ import annotations

import pytest
from rl_core.config import RolloutConfig
from rl_core.errors import ConfigError, RlError
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_testing.contracts.ranks import ThreadRanks, run_on_all
from rl_testing.contracts.replica import Replica, ServingRank, ask, build_serving_rank
from rl_testing.fakes.rollout_config import FakeRolloutConfig
from rl_testing.fakes.sliced_rollout import SlicedRollout
from rl_testing.fakes.tiny_policy import TinyPolicy

POLICY = TinyPolicy()


def context(rank=0, world_size=1):
    return WorkerContext(
        rank=rank,
        world_size=world_size,
        local_rank=rank,
        local_world_size=world_size,
        device="cpu",
        collective=SoloCollective(),
    )


@pytest.fixture
def serve():
    opened = []

    def start(num_ranks=1, size=1, own=None, **section):
        rollout = RolloutConfig(name="fake", tensor_model_parallel_size=size, **section)
        if own is not None:
            rollout.fake_config = own
        build = build_serving_rank(lambda ctx: SlicedRollout(POLICY.model_section(), rollout, ctx), 20.0)
        ranks = ThreadRanks(num_ranks, build, dispose=ServingRank.close)
        opened.append(ranks)
        return Replica(ranks, POLICY)

    yield start
    for ranks in opened:
        ranks.close()


def test_replicas_are_consecutive_ranks():
    rollout = RolloutConfig(name="fake", tensor_model_parallel_size=2)
    infos = [SlicedRollout(POLICY.model_section(), rollout, context(rank, 4)).dispatch_info() for rank in range(4)]
    assert [(info.dp_rank, info.dp_size, info.is_collect) for info in infos] == [
        (0, 2, True),
        (0, 2, False),
        (1, 2, True),
        (1, 2, False),
    ]


def test_workers_must_divide_into_replicas():
    rollout = RolloutConfig(name="fake", tensor_model_parallel_size=2)
    with pytest.raises(ConfigError, match="does not divide the 3 workers"):
        SlicedRollout(POLICY.model_section(), rollout, context(0, 3))


def test_two_replicas_of_two_answer_alike(serve):
    replica = serve(num_ranks=4, size=2)
    replica.sync(1)
    request = ask((5, 3, 9), seed=3, max_tokens=5)
    first, second = (replica.ranks.run(lead, lambda held: held.run(held.engine.generate(request))) for lead in (0, 2))
    assert (first.token_ids, first.log_probs) == (second.token_ids, second.log_probs)


def test_number_of_slices_changes_no_bit(serve):
    requests = [ask((5, 3, 9), name=str(seed), seed=seed, max_tokens=6) for seed in range(6)]
    results = []
    for size in (1, 2, 3):
        replica = serve(num_ranks=size, size=size)
        replica.sync(1)
        results.append([(output.token_ids, output.log_probs) for output in replica.outputs(*requests)])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("places", [1, 2, 64])
def test_places_change_nothing(serve, places):
    requests = [ask((5, 3, 9), name=str(seed), seed=seed, max_tokens=4 + seed) for seed in range(6)]
    few, many = serve(max_num_seqs=places), serve()
    for replica in (few, many):
        replica.sync(1)
    assert few.outputs(*requests) == many.outputs(*requests)


def test_prefixes_are_cached_per_prompt_and_dropped_with_their_weights(serve):
    replica = serve()
    replica.sync(1)

    def cached():
        return replica.ranks.run(0, lambda held: set(held.engine._prefixes))

    replica.outputs(*(ask(prompt, name=str(prompt), max_tokens=2) for prompt in ((5, 3), (7,))))
    assert cached() == {(5, 3), (7,)}
    replica.sync(2)
    replica.output(ask((7,), max_tokens=2))
    assert cached() == {(7,)}
    replica.on_lead(lambda engine: engine.reset_prefix_cache())
    assert cached() == set()


def test_prefix_caching_can_be_off(serve):
    replica = serve(enable_prefix_caching=False)
    replica.sync(1)
    replica.output(ask((5, 3), max_tokens=2))
    assert replica.ranks.run(0, lambda held: held.engine._prefixes) == {}


def test_log_probs_can_be_off(serve):
    replica = serve(calculate_log_probs=False)
    replica.sync(1)
    assert replica.output(ask((5, 3), max_tokens=2)).log_probs is None


def test_token_ranks_come_as_extras(serve):
    replica = serve(own=FakeRolloutConfig(with_token_ranks=True))
    replica.sync(1)
    greedy = replica.output(ask((5, 3), temperature=0.0, max_tokens=4, ignore_eos=True))
    assert greedy.extras["token_ranks"].tolist() == [0, 0, 0, 0]
    drawn = replica.output(ask((5, 3), seed=1, temperature=2.0, max_tokens=8, ignore_eos=True))
    assert drawn.extras["token_ranks"].max() > 0


def test_requests_in_flight_end_when_the_engine_sleeps(serve):
    replica = serve()
    replica.sync(1)
    replica.on_lead(lambda engine: engine.pause())
    replica.start(ask((5, 3), name="late", max_tokens=4))
    replica.on_all(lambda engine: engine.sleep(1))
    assert replica.wait("late", 5.0).finish_reason == "abort"


def test_there_are_two_levels(serve):
    with pytest.raises(ConfigError, match="level 3"):
        serve().on_lead(lambda engine: engine.sleep(3))


def test_a_request_before_initialize_is_refused():
    import asyncio

    engine = SlicedRollout(POLICY.model_section(), RolloutConfig(name="fake"), context())
    with pytest.raises(RlError, match="not initialized"):
        asyncio.run(engine.generate(ask((5,))))
    asyncio.run(engine.close())


def test_a_peer_that_sleeps_stops_the_lead(serve):
    replica = serve(num_ranks=2, size=2)
    replica.sync(1)
    replica.ranks.run(1, lambda held: held.run(held.engine.sleep(1)))
    with pytest.raises(RlError, match="asleep"):
        replica.output(ask((5,), max_tokens=2))
    assert [health.ok for health in run_on_all(replica.ranks, lambda held: held.run(held.engine.health()))] == [
        False,
        False,
    ]
