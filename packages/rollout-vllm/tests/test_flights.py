from __future__ import annotations

import logging

import pytest
from rl_core.contracts.rollout import RolloutRequest, SamplingParams
from rl_core.errors import RlError, WeightSyncError
from rl_rollout_vllm.flights import Flights
from rl_rollout_vllm.in_flight import InFlight


def flight(name, required_version=None, max_tokens=10):
    request = RolloutRequest(
        request_id=name,
        prompt_ids=(1, 2),
        sampling=SamplingParams(max_tokens=max_tokens),
        seed=0,
        required_version=required_version,
    )
    return InFlight(request, f"{name}#1", eos_token_ids=(), max_model_len=1000, version=1, stop_strings=None)


def test_a_name_is_free_again_when_its_request_has_ended():
    flights, item = Flights(), flight("a")
    assert not flights
    with flights.holding(item):
        assert flights.named(["a", "unknown"]) == flights.named(None) == list(flights) == [item]
        with pytest.raises(RlError, match="'a' is in flight already"), flights.holding(flight("a")):
            pass
        assert flights.named(["a"]) == [item]
    assert item.is_ended
    assert not flights


def test_a_released_name_can_be_taken_while_the_first_answer_is_on_its_way():
    flights, first, second = Flights(), flight("a"), flight("a")
    with flights.holding(first):
        flights.release(first)
        with flights.holding(second):
            flights.release(first)
            assert flights.named(["a"]) == [second]


def test_vllm_never_hears_a_name_twice():
    flights = Flights()
    assert flights.next_name("a") != flights.next_name("a")


def test_a_small_cache_is_said_once_with_the_knob(caplog):
    flights = Flights()
    with flights.holding(flight("a")), flights.holding(flight("b")), flights.holding(flight("c", max_tokens=22)):
        for _ in range(2):
            flights.warn_if_crowded(cache_tokens=32, max_num_seqs=8)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    # 12 + 12 + 24 tokens, 16 on average; two of them fit.
    assert "3 requests of up to 16 tokens" in record.getMessage()
    assert "32 tokens, 2 such sequences" in record.getMessage()
    assert "gpu_memory_utilization" in record.getMessage()


@pytest.mark.parametrize(("cache_tokens", "max_num_seqs"), [(36, 8), (24, 2), (0, 8)])
def test_a_cache_that_holds_what_runs_at_a_time_is_fine(caplog, cache_tokens, max_num_seqs):
    flights = Flights()
    with flights.holding(flight("a")), flights.holding(flight("b")), flights.holding(flight("c")):
        flights.warn_if_crowded(cache_tokens=cache_tokens, max_num_seqs=max_num_seqs)
    assert not caplog.records


def test_who_waits_for_older_weights_is_refused_and_who_has_begun_goes_on():
    flights, waiting, begun, fits = Flights(), flight("waiting", 1), flight("begun", 1), flight("fits", 2)
    with flights.holding(waiting), flights.holding(begun), flights.holding(fits), flights.holding(flight("any")):
        assert flights.refuse_stale(2, {"begun#1": 3}) == [waiting]
    assert isinstance(waiting.error, WeightSyncError)
    assert begun.error is None
