"""Promises of a generation engine about single requests: what comes back, when a response ends, and who else notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace as with_fields
from typing import Any

import pytest
from rl_core.contracts.rollout import RolloutEngine, RolloutOutput
from rl_core.errors import RlError, WeightSyncError

from rl_testing.contracts.replica import Replica, ask, essence
from rl_testing.contracts.rollout_base import RolloutSuite, with_sampling


class RolloutRequestsContract(RolloutSuite):
    """Token in, token out."""

    def test_an_output_has_the_shape_of_the_contract(self, replica: Replica) -> None:
        """Ids are in the vocabulary, and everything that is per token is as long as the response.

        If this fails: the prompt is returned too, a token lacks its log-prob or version, or ids are of another request.
        """
        requests = [ask(prompt, name=f"r{row}", seed=row, max_tokens=6) for row, prompt in enumerate(self.prompts)]
        for request, output in zip(requests, replica.outputs(*requests), strict=True):
            length = len(output.token_ids)
            assert output.request_id == request.request_id
            assert 1 <= length <= 6
            assert all(0 <= token < replica.policy.vocab_size for token in output.token_ids)
            assert output.finish_reason in ("stop", "length")
            assert sum(count for _, count in output.versions) == length
            assert output.log_probs is None or len(output.log_probs) == length
            assert {name: len(values) for name, values in output.extras.items()} == dict.fromkeys(output.extras, length)

    def test_end_of_sequence_ends_a_response_and_is_part_of_it(
        self, replica: Replica, serve_with_eos: Callable[[int], Replica]
    ) -> None:
        """The end-of-sequence token is the last token of the response, with its log-prob.

        If this fails: the engine strips the token. Training needs it: without it no model learns to stop.
        """
        asked, tokens, position = self.prefix_of(replica)
        output = serve_with_eos(tokens[position]).output(with_sampling(asked, ignore_eos=False))
        assert output.token_ids == tokens[: position + 1]
        assert output.finish_reason == "stop"
        assert output.log_probs is None or len(output.log_probs) == position + 1

    def test_stop_tokens_end_a_response_and_are_part_of_it(self, replica: Replica) -> None:
        """``stop_token_ids`` work as an end of sequence does.

        If this fails: they are ignored, or stripped.
        """
        asked, tokens, position = self.prefix_of(replica)
        stopping = with_sampling(asked, ignore_eos=False, stop_token_ids=(tokens[position],))
        output = replica.output(stopping)
        assert output.token_ids == tokens[: position + 1]
        assert output.finish_reason == "stop"

    def test_stop_strings_end_a_response(self, replica: Replica) -> None:
        """A response ends as soon as a stop string stands in its text; its tokens stay.

        If this fails: ``stop`` is ignored, or the text is cut while ids are not.
        """
        asked, tokens, position = self.prefix_of(replica)
        text = replica.policy.decode(tokens[position - 1 : position + 1])
        output = replica.output(with_sampling(asked, ignore_eos=False, stop=(text,)))
        assert output.token_ids == tokens[: position + 1]
        assert output.finish_reason == "stop"

    def test_max_tokens_counts_every_token(self, replica: Replica) -> None:
        """A response of ``max_tokens`` tokens ends for its length.

        If this fails: the limit is off by one, or counts the prompt.
        """
        for limit in (1, 5):
            output = replica.output(ask(self.prompts[0], max_tokens=limit, ignore_eos=True))
            assert len(output.token_ids) == limit
            assert output.finish_reason == "length"

    def test_min_tokens_holds_the_end_back(self, replica: Replica, serve_with_eos: Callable[[int], Replica]) -> None:
        """No end of sequence and no stop token ends a response that is shorter than ``min_tokens``.

        If this fails: ``min_tokens`` is not passed on to the engine.
        """
        asked, tokens, position = self.prefix_of(replica)
        least = position + 3
        held_back = with_sampling(asked, ignore_eos=False, min_tokens=least)
        assert len(serve_with_eos(tokens[position]).output(held_back).token_ids) >= least
        stopping = with_sampling(held_back, stop_token_ids=(tokens[position],))
        assert len(replica.output(stopping).token_ids) >= least

    def test_ignore_eos_goes_on(self, replica: Replica, serve_with_eos: Callable[[int], Replica]) -> None:
        """With ``ignore_eos`` a response has ``max_tokens`` tokens, ends of sequence among them.

        If this fails: the switch is not passed on, or the token is kept from being drawn, which changes the draws.
        """
        asked, tokens, position = self.prefix_of(replica)
        output = serve_with_eos(tokens[position]).output(asked)
        assert output.token_ids == tokens
        assert output.finish_reason == "length"

    def test_every_request_has_its_own_parameters(self, replica: Replica) -> None:
        """Requests that want different things can be in flight together.

        If this fails: parameters of one request (or of the batch) are applied to others.
        """
        asked, tokens, position = self.prefix_of(replica)
        requests = [
            with_sampling(asked, max_tokens=7),
            with_sampling(ask(self.prompts[3], name="greedy", seed=1), temperature=0.0, max_tokens=3, ignore_eos=True),
            with_sampling(
                ask(self.prompts[3], name="stop", seed=asked.seed),
                max_tokens=12,
                stop_token_ids=(tokens[position],),
            ),
        ]
        long, greedy, stopped = replica.outputs(*requests)
        assert long.token_ids == tokens[:7]
        assert essence(greedy) == essence(replica.output(requests[1]))
        assert stopped.token_ids == tokens[: position + 1]

    def test_a_bad_request_fails_alone(self, replica: Replica) -> None:
        """An empty prompt and one that is too long are refused with an expected error; others do not notice.

        If this fails: one bad row ends a batch, or a prompt is cut without a word.
        """
        good = [ask(prompt, name=f"good-{row}", max_tokens=4) for row, prompt in enumerate(self.prompts[:2])]
        token = self.prompts[0][0]
        empty = ask((), name="empty", max_tokens=4)
        long = ask((token,) * self.too_long_prompt, name="long", max_tokens=4)
        outcomes = replica.generate(good[0], empty, good[1], long)
        for outcome in (outcomes[1], outcomes[3]):
            assert isinstance(outcome, RlError)
            assert not isinstance(outcome, WeightSyncError)
        assert "empty" in str(outcomes[1])
        assert str(self.too_long_prompt) in str(outcomes[3])
        for request, outcome in zip(good, (outcomes[0], outcomes[2]), strict=True):
            assert not isinstance(outcome, Exception)
            assert essence(outcome) == essence(replica.output(request))

    def test_many_requests_are_all_answered(self, replica: Replica) -> None:
        """More requests than the engine has places for: each gets its own answer.

        If this fails: requests are lost, mixed up, or answered twice when they queue.
        """
        requests = [
            ask(self.prompts[row % 4], name=f"r{row}", seed=row, max_tokens=2 + row % 5, ignore_eos=True)
            for row in range(64)
        ]
        outputs = replica.outputs(*requests)
        assert [output.request_id for output in outputs] == [request.request_id for request in requests]
        assert [len(output.token_ids) for output in outputs] == [2 + row % 5 for row in range(64)]
        for row in (0, 31, 63):
            assert essence(outputs[row]) == essence(replica.output(requests[row]))

    def test_abort_returns_what_is_there(self, replica: Replica) -> None:
        """An aborted request comes back with its tokens so far and reason ``abort``; others go on.

        If this fails: the caller waits for ever, gets an error or nothing instead of the partial response, or everybody
        is aborted.
        """
        # The short one ends only after the others, which came first, have drawn a token.
        for name in ("doomed", "spared"):
            replica.start(ask(self.prompts[0], name=name, max_tokens=self.long_response, ignore_eos=True))
        replica.output(ask(self.prompts[1], name="short", max_tokens=1))
        replica.on_lead(lambda engine: engine.abort(["doomed", "never asked for"]))
        doomed = replica.wait("doomed", self.deadline_s)
        self.assert_partial(doomed)
        with pytest.raises(TimeoutError):
            replica.wait("spared", 0.01)
        replica.on_lead(lambda engine: engine.abort())
        spared = replica.wait("spared", self.deadline_s)
        self.assert_partial(spared)
        # Which of the two got further is a matter of when each was admitted; what they drew is not.
        common = min(len(spared.token_ids), len(doomed.token_ids))
        assert spared.token_ids[:common] == doomed.token_ids[:common]

    def test_a_cut_response_goes_on_as_if_it_had_not_been(
        self, replica: Replica, serve_with_eos: Callable[[int], Replica]
    ) -> None:
        """A request with ``response_ids`` draws what the whole one draws behind them, and ends where it ends.

        If this fails: draws count from the cut instead of from the start of the response, the beginning is no part of the
        context or comes back a second time, or ``max_tokens``, ``min_tokens`` or a stop string do not see it.
        """
        asked, tokens, position = self.prefix_of(replica)
        whole = replica.output(asked)
        for cut in (1, position, len(tokens) - 1):
            rest = replica.output(with_fields(asked, response_ids=tokens[:cut]))
            assert rest.token_ids == tokens[cut:]
            assert sum(count for _, count in rest.versions) == len(tokens) - cut
            assert {len(values) for values in rest.extras.values()} <= {len(tokens) - cut}
            if whole.log_probs is not None and rest.log_probs is not None:
                assert list(rest.log_probs) == pytest.approx(
                    list(whole.log_probs[cut:]), rel=0, abs=2 * self.log_prob_tolerance
                )
        resumed = with_fields(with_sampling(asked, ignore_eos=False), response_ids=tokens[:position])
        text = replica.policy.decode(tokens[position - 1 : position + 1])
        for stopping in (with_sampling(resumed, stop=(text,)), with_sampling(resumed, max_tokens=position + 1)):
            assert replica.output(stopping).token_ids == tokens[position : position + 1]
        held_back = with_sampling(resumed, min_tokens=position + 1)
        assert serve_with_eos(tokens[position]).output(held_back).token_ids == tokens[position : position + 1]

    def test_a_response_that_is_full_cannot_go_on(self, replica: Replica) -> None:
        """``response_ids`` as long as ``max_tokens`` are refused with an expected error.

        If this fails: the response grows beyond its budget by a token, or the caller waits for one that never comes.
        """
        token = self.prompts[0][0]
        full = with_fields(ask(self.prompts[0], max_tokens=3), response_ids=(token,) * 3)
        (outcome,) = replica.generate(full)
        assert isinstance(outcome, RlError)
        assert not isinstance(outcome, WeightSyncError)

    def assert_partial(self, output: RolloutOutput) -> None:
        """Some tokens, whole in themselves, and the reason."""
        assert output.finish_reason == "abort"
        assert 1 <= len(output.token_ids) < self.long_response
        assert sum(count for _, count in output.versions) == len(output.token_ids)
        assert output.log_probs is None or len(output.log_probs) == len(output.token_ids)

    def test_a_caller_that_gives_up_disturbs_nobody(self, replica: Replica) -> None:
        """A cancelled call frees its request's name and place.

        If this fails: the engine goes on for a caller that is gone, and its name can never be used again.
        """
        request = ask(self.prompts[0], max_tokens=self.long_response, ignore_eos=True)

        async def give_up(engine: RolloutEngine) -> Any:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(engine.generate(request), 0.01)
            return await engine.generate(with_sampling(request, max_tokens=3))

        assert len(replica.on_lead(give_up).token_ids) == 3
