from __future__ import annotations

import asyncio

import pytest
from rl_core.contracts.rollout import RolloutRequest, SamplingParams
from rl_engine.serving.stopping import StopStrings
from rl_rollout_hf.in_flight import InFlight, version_spans


def run(check, *, prompt=(1, 2, 3), response=(), stop=None, max_model_len=100, **sampling):
    """`check` on an item, in a loop."""

    async def main():
        request = RolloutRequest(
            request_id="r", prompt_ids=prompt, response_ids=response, sampling=SamplingParams(**sampling), seed=3
        )
        future = asyncio.get_running_loop().create_future()
        item = InFlight(request, future, eos_token_ids=(9,), max_model_len=max_model_len, stop_strings=stop)
        check(item)

    asyncio.run(main())


def test_a_response_ends_by_its_length():
    def check(item):
        assert item.final_length == 5
        assert [item.add(4, -1.0, 1), item.add(4, -1.0, 1)] == [None, "length"]

    run(check, max_tokens=2)


def test_a_response_ends_by_the_length_of_the_model():
    run(lambda item: [item.add(4, -1.0, 1), item.add(4, -1.0, 1)] == [None, "length"] or pytest.fail(), max_model_len=5)


def test_a_stop_on_the_last_token_is_a_stop():
    def check(item):
        assert item.add(9, -1.0, 1) == "stop"

    run(check, max_tokens=1)


def test_nothing_ends_before_min_tokens_but_what_stands_in_the_text_then_does():
    def check(item):
        held = []
        for token in (7, 8, 6):
            held.append(item.is_held_back)
            reason = item.add(token, -1.0, 1)
        assert held == [True, True, False]
        assert reason == "stop"

    run(check, max_tokens=9, min_tokens=3, stop=StopStrings(("7",), lambda ids: "".join(map(str, ids))))


def test_the_context_is_everything_but_the_last_token():
    def check(item):
        assert (item.context(), item.last_token, item.length) == ((1, 2), 3, 3)
        item.add(4, -1.0, 1)
        item.add(5, -1.0, 1)
        assert (item.context(), item.last_token, item.length) == ((1, 2, 3, 4), 5, 5)

    run(check, max_tokens=9)


def test_the_answer_has_what_was_drawn():
    def check(item):
        item.add(4, -0.5, 1)
        item.add(5, -0.25, 2)
        item.finish("abort", with_log_probs=True)
        item.fail(ValueError("too late"))
        output = item.future.result()
        assert (output.token_ids, output.log_probs, output.versions) == ((4, 5), (-0.5, -0.25), ((1, 1), (2, 1)))
        assert output.finish_reason == "abort"

    run(check)


def test_spans_count_tokens_of_equal_versions():
    assert version_spans([]) == ()
    assert version_spans([3, 3, 4, 3]) == ((3, 2), (4, 1), (3, 1))


def test_a_cut_response_goes_on_behind_what_there_is():
    def check(item):
        assert (item.context(), item.last_token, item.length) == ((1, 2, 3, 7), 8, 5)
        assert (item.is_held_back, len(item.tokens)) == (True, 2)
        assert [item.add(6, -1.0, 4), item.add(5, -2.0, 4)] == [None, "length"]
        item.finish("length", with_log_probs=True)
        output = item.future.result()
        assert (output.token_ids, output.log_probs, output.versions) == ((6, 5), (-1.0, -2.0), ((4, 2),))

    run(check, response=(7, 8), max_tokens=4, min_tokens=4)


def test_a_stop_string_may_begin_before_the_cut():
    stop = StopStrings(("87",), lambda ids: "".join(map(str, ids)))
    run(lambda item: item.add(7, -1.0, 1) == "stop" or pytest.fail(), response=(6, 8), stop=stop, max_tokens=9)
