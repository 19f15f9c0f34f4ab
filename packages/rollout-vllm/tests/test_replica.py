"""The lead's state machine, with an engine that only remembers what it was asked."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from rl_core.contracts.rollout import RolloutRequest, RolloutState, SamplingParams
from rl_core.errors import RlError, WeightSyncError
from rl_rollout_vllm.in_flight import InFlight
from rl_rollout_vllm.replica import LeadReplica

WEIGHTS, CACHE = RolloutState.WEIGHTS, RolloutState.KV_CACHE
GIB = 2**30


class Engine:
    """Remembers its calls."""

    def __init__(self):
        self.calls, self.is_dead, self.failing = [], False, None
        self.free = 10 * GIB

    def __getattr__(self, name):
        async def call(*args):
            self.calls.append((name, *args))
            return True

        return call

    async def prepare(self):
        return SimpleNamespace(draw_mode="hooked")

    async def rpc(self, method, *args):
        if method == self.failing:
            raise RlError("worker says no")
        if method == "rl_memory":
            return [
                {"weights": GIB, "kv_cache": GIB, "free": self.free, "total": 20 * GIB, "allocated": 0, "reserved": 0}
            ]
        return [0] if method == "rl_preemptions" else [method]

    async def sleep(self, level):
        self.calls.append(("sleep", level))
        self.free += 2 * GIB

    def progress(self, name):
        return 3


@pytest.fixture
def engines():
    return []


@pytest.fixture
def open_replica(engines):
    async def start():
        engines.append(Engine())
        return engines[-1]

    async def make(has_device_memory=True):
        replica = LeadReplica(start, has_device_memory=has_device_memory, min_freed_share=0.9)
        await replica.open()
        return replica

    return make


def flight(name="a"):
    request = RolloutRequest(request_id=name, prompt_ids=(1,), sampling=SamplingParams(), seed=0)
    return InFlight(request, f"{name}#1", eos_token_ids=(), max_model_len=99, version=1, stop_strings=None)


def test_a_sleep_measures_what_it_gave_back(open_replica, engines):
    async def scenario():
        replica = await open_replica()
        replica.set_version(1)
        await replica.sleep(2, {WEIGHTS, CACHE})
        assert ("sleep", 2) in engines[0].calls
        assert (replica.version, replica.freed_bytes) == (None, 2 * GIB)
        with pytest.raises(WeightSyncError, match="asleep"):
            await replica.rpc("rl_weights_fit", "{}")
        await replica.wake([WEIGHTS])
        assert engines[0].calls[-1] == ("wake", ["weights"])
        assert await replica.rpc("rl_weights_fit", "{}") == ["rl_weights_fit"]

    asyncio.run(scenario())


def test_level_1_keeps_the_version(open_replica):
    async def scenario():
        replica = await open_replica()
        replica.set_version(4)
        await replica.sleep(1, {WEIGHTS, CACHE})
        assert replica.version == 4

    asyncio.run(scenario())


def test_a_cpu_has_no_sleep_but_forgets(open_replica, engines):
    async def scenario():
        replica = await open_replica(has_device_memory=False)
        await replica.sleep(1, {WEIGHTS, CACHE})
        await replica.wake([WEIGHTS, CACHE])
        names = [name for name, *_ in engines[0].calls]
        assert names == ["forget_prefixes"]  # nothing is drawn, so there is nothing to pause

    asyncio.run(scenario())


def test_an_engine_that_died_is_replaced_when_it_is_woken(open_replica, engines):
    async def scenario():
        replica = await open_replica()
        replica.set_version(1)
        engines[0].is_dead = True
        assert "died" in replica.failure
        await replica.sleep(2, {WEIGHTS, CACHE})
        await replica.wake([WEIGHTS])
        assert len(engines) == 2
        assert replica.restarts == 1
        assert (replica.failure, replica.version) == (None, None)
        # Fresh engines are awake; the cache was not asked for.
        assert [call for call in engines[1].calls if call[0] in ("sleep", "wake")] == [
            ("sleep", 2),
            ("wake", ["weights"]),
        ]

    asyncio.run(scenario())


def test_a_failed_call_on_the_workers_leaves_nothing_to_serve(open_replica, engines):
    async def scenario():
        replica = await open_replica()
        replica.set_version(1)
        engines[0].failing = "load"
        with pytest.raises(RlError, match="worker says no"):
            await replica.rpc("load", b"")
        assert replica.version is None
        assert "load" in replica.failure

    asyncio.run(scenario())


def test_weights_that_change_under_a_request_end_it(open_replica, engines):
    async def scenario():
        replica = await open_replica()
        replica.set_version(1)
        item = flight()
        with replica.flights.holding(item):
            replica.set_version(None)
            await asyncio.sleep(0)
        assert isinstance(item.error, WeightSyncError)
        assert ("abort", ["a#1"]) in engines[0].calls

    asyncio.run(scenario())


def test_paused_requests_live_on_under_the_next_version(open_replica):
    async def scenario():
        replica = await open_replica()
        replica.set_version(1)
        item = flight()
        with replica.flights.holding(item):
            await replica.pause()
            replica.set_version(None)
            replica.set_version(2)
            await replica.resume()
        assert item.error is None
        item.tokens = [5, 6, 7, 8]
        assert item.finish("abort", with_log_probs=False, raw=False).versions == ((1, 3), (2, 1))

    asyncio.run(scenario())


def test_abort_names_what_is_in_flight_alone(open_replica, engines):
    async def scenario():
        replica = await open_replica()
        item = flight()
        with replica.flights.holding(item):
            await replica.abort(["nobody"])
            assert not engines[0].calls
            await replica.abort(["a"])
            assert engines[0].calls == [("abort", ["a#1"])]
            assert not replica.flights

    asyncio.run(scenario())


def test_nothing_is_drawn_from_weights_that_are_not_whole_whoever_resumes(open_replica, engines):
    async def scenario():
        replica = await open_replica()
        replica.set_version(1)
        await replica.pause()
        with replica.flights.holding(flight()):
            replica.set_version(None)  # an update begins, and ends badly
            await replica.resume()
            assert replica.is_paused
            assert "resume" not in [name for name, *_ in engines[0].calls]
            replica.set_version(2)
            while replica.is_paused:
                await asyncio.sleep(0)
        assert [name for name, *_ in engines[0].calls].count("resume") == 1

    asyncio.run(scenario())


def test_a_failed_reset_leaves_nobody_paused(open_replica, engines):
    async def scenario():
        replica = await open_replica()
        replica.set_version(1)

        async def refuses():
            return False

        engines[0].forget_prefixes = refuses
        with replica.flights.holding(flight()):
            with pytest.raises(RlError, match="did not drop its prefix cache"):
                await replica.reset_prefix_cache()
            assert not replica.is_paused

    asyncio.run(scenario())
