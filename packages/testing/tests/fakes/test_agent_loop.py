from __future__ import annotations

import asyncio

import pytest
from rl_core.contracts.rollout import SamplingParams
from rl_testing.fakes.agent_loop import EchoTwoTurnLoop, ScriptedClient
from rl_testing.fakes.tokenizer import TinyTokenizer

ENCODE = TinyTokenizer().encode
GLUE = tuple(ENCODE("\ntool:cd\nassistant:"))


def play(max_tokens, raw_prompt="hi", **client):
    client = ScriptedClient(turns=((4, 5), (6, 1)), **client)
    loop = EchoTwoTurnLoop(client, TinyTokenizer(), None)
    run = loop.run(SamplingParams(max_tokens=max_tokens), raw_prompt=raw_prompt, session="s", validate=True)
    return asyncio.run(run), client


def test_two_turns():
    output, client = play(100)
    assert output.prompt_ids == tuple(ENCODE("hi"))
    assert output.response_ids == (4, 5, *GLUE, 6, 1)
    assert output.response_mask == (1, 1, *([0] * len(GLUE)), 1, 1)
    assert output.response_logprobs == (-1.0, -1.01, *([0.0] * len(GLUE)), -2.0, -2.01)
    assert output.versions == ((0, 2), (0, 2))
    assert output.num_turns == 3
    assert output.extra_fields == {"validate": True}
    assert client.calls[1].prompt_ids == (*ENCODE("hi"), 4, 5, *GLUE)
    assert client.calls[1].sampling.max_tokens == 100 - 2 - len(GLUE)


@pytest.mark.parametrize("budget", [1, 2, 2 + len(GLUE)])
def test_one_turn_where_there_is_no_room_for_two(budget):
    output, client = play(budget)
    assert output.response_ids == (4, 5)[:budget]
    assert (output.num_turns, len(client.calls)) == (1, 1)


def test_the_last_token_of_the_budget_is_used():
    assert play(3 + len(GLUE))[0].response_ids == (4, 5, *GLUE, 6)


def test_chat_prompts_are_rendered():
    output, _ = play(1, raw_prompt=[{"role": "user", "content": "hi"}])
    assert output.prompt_ids == tuple(ENCODE("user:hi\nassistant:"))


def test_no_log_probs():
    assert play(100, with_log_probs=False)[0].response_logprobs is None
