from __future__ import annotations

from types import SimpleNamespace

import pytest
from rl_core.contracts.rollout import RolloutRequest, SamplingParams
from rl_core.errors import RlError
from rl_engine.serving.stopping import StopStrings
from rl_rollout_vllm.in_flight import InFlight, log_probs_of


def flight(*, response_ids=(), stop_strings=None, max_model_len=100, **sampling):
    request = RolloutRequest(
        request_id="r",
        prompt_ids=(1, 2, 3),
        sampling=SamplingParams(**{"max_tokens": 10, **sampling}),
        seed=2**62 + 5,
        response_ids=response_ids,
    )
    return InFlight(
        request, "r#1", eos_token_ids=(90,), max_model_len=max_model_len, version=1, stop_strings=stop_strings
    )


def drawn(*tokens, finished=None):
    completion = SimpleNamespace(
        token_ids=list(tokens),
        logprobs=SimpleNamespace(logprobs=[-float(token) for token in tokens]),
        finish_reason=finished,
    )
    return SimpleNamespace(outputs=[completion], finished=finished is not None)


def finish(item, reason="stop", with_log_probs=True, raw=False):
    return item.finish(reason, with_log_probs=with_log_probs, raw=raw)


def test_a_whole_response():
    item = flight()
    assert item.add(drawn(4, 5, 90, finished="stop")) == "stop"
    output = finish(item)
    assert (output.request_id, output.token_ids, output.log_probs) == ("r", (4, 5, 90), (-4.0, -5.0, -90.0))
    assert (output.finish_reason, output.versions) == ("stop", ((1, 3),))


def test_pieces_are_put_together():
    item = flight()
    assert item.add(drawn(4)) is None
    assert item.add(drawn(5, 6, finished="length")) == "length"
    assert finish(item, "length").token_ids == (4, 5, 6)


def test_an_abort_before_the_first_token():
    item = flight()
    assert item.add(drawn(finished="abort")) == "abort"
    assert finish(item, "abort").versions == ()


def test_an_end_by_an_error_is_an_error():
    with pytest.raises(RlError, match=r"'r' after 1 tokens \(finish reason 'error'\)"):
        flight().add(drawn(4, finished="error"))


def test_greedy_tokens_are_certain():
    item = flight(temperature=0.0)
    item.add(drawn(4, 5, finished="length"))
    assert finish(item).log_probs == (0.0, 0.0)
    assert finish(item, raw=True).log_probs == (-4.0, -5.0)
    assert finish(item, with_log_probs=False).log_probs is None


@pytest.mark.parametrize(
    ("changes", "spans"),
    [
        ([], ((1, 5),)),
        ([(2, 3)], ((1, 2), (3, 3))),
        ([(0, 3)], ((3, 5),)),
        ([(2, 3), (2, 4)], ((1, 2), (4, 3))),
        ([(2, 3), (4, 3)], ((1, 2), (3, 3))),
        ([(2, 3), (2, 1)], ((1, 5),)),
        ([(5, 3)], ((1, 5),)),
    ],
)
def test_every_token_is_counted_to_the_version_that_drew_it(changes, spans):
    item = flight()
    for count, version in changes:
        item.change_version(count, version)
    item.add(drawn(4, 5, 6, 7, 8, finished="length"))
    assert finish(item).versions == spans


def test_a_stop_string_ends_the_response_where_it_stands():
    strings = StopStrings(("b c",), lambda ids: " ".join("abcdefgh"[token] for token in ids))
    item = flight(stop=("b c",), stop_strings=strings)
    assert item.add(drawn(0, 1)) is None
    assert item.add(drawn(2, 3, 4)) == "stop"
    assert finish(item).token_ids == (0, 1, 2)


def test_a_stop_string_may_begin_in_the_part_that_was_given_and_waits_for_the_minimum():
    def decode(ids):
        return " ".join("abcdefgh"[token] for token in ids)

    assert flight(response_ids=(1,), stop_strings=StopStrings(("b c",), decode)).add(drawn(2)) == "stop"
    held_back = flight(stop_strings=StopStrings(("b c",), decode), min_tokens=3)
    assert held_back.add(drawn(1, 2)) is None
    assert held_back.add(drawn(3)) == "stop"


def test_what_is_left_counts_from_the_first_token():
    item = flight(response_ids=(4, 5), max_tokens=10)
    assert (item.room, item.final_length) == (8, 13)
    assert flight(response_ids=(4, 5), max_model_len=8).room == 3


def test_both_forms_of_log_probs():
    flat = SimpleNamespace(logprobs=[-1.0, -2.0])
    listed = [{7: SimpleNamespace(logprob=-1.0)}, {8: SimpleNamespace(logprob=-2.0)}]
    assert log_probs_of(flat, [7, 8]) == log_probs_of(listed, [7, 8]) == [-1.0, -2.0]
    assert log_probs_of(None, [7, 8]) is None


def test_parameters_that_vllm_gets():
    params = flight(temperature=0.5, top_p=0.9, top_k=3, min_tokens=6, stop_token_ids=(7,), response_ids=(4, 5)).params(
        with_log_probs=True, draw_mode="hooked"
    )
    assert (params.temperature, params.top_p, params.top_k) == (0.5, 0.9, 3)
    assert (params.max_tokens, params.min_tokens) == (8, 3)
    assert (params.stop_token_ids, params.ignore_eos, params.logprobs) == ([90, 7], True, 0)
    assert (params.seed, params.extra_args) == (None, {"rl_seed": 2**62 + 5})


def test_a_runner_that_draws_by_position_gets_the_seed_itself():
    params = flight().params(with_log_probs=False, draw_mode="position")
    assert (params.seed, params.extra_args, params.logprobs) == (2**62 + 5, None, None)


@pytest.mark.parametrize("draw_mode", ["hooked", "position"])
def test_greedy_draws_need_no_seed(draw_mode):
    params = flight(temperature=0.0).params(with_log_probs=True, draw_mode=draw_mode)
    assert (params.seed, params.extra_args) == (None, None)


def test_ends_are_ignored_on_demand():
    params = flight(ignore_eos=True, stop_token_ids=(7,)).params(with_log_probs=True, draw_mode="hooked")
    assert params.stop_token_ids == []


def test_images_go_along():
    request = RolloutRequest(
        request_id="r", prompt_ids=(1,), sampling=SamplingParams(), seed=0, images=("picture",), response_ids=(2,)
    )
    item = InFlight(request, "r#1", eos_token_ids=(), max_model_len=9, version=1, stop_strings=None)
    assert item.prompt() == {"prompt_token_ids": [1, 2], "multi_modal_data": {"image": ["picture"]}}
