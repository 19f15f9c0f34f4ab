"""Generation engines that break a promise about single requests."""

# A fault's class says what it does wrong; what its methods should do stands in the contract.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from rl_core.contracts.rollout import FinishReason, RolloutOutput, RolloutRequest, SamplingParams
from rl_core.errors import RlError

from rl_testing.fakes.sliced_rollout import SlicedRollout
from rl_testing.fakes.stopping import StopRules
from rl_testing.faults.fault import Fault


class ChangesRequests(SlicedRollout):
    """Serves another request than the one that was asked."""

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        return await super().generate(self.changed(request))

    def changed(self, request: RolloutRequest) -> RolloutRequest:
        return replace(request, sampling=self.changed_sampling(request.sampling))

    def changed_sampling(self, sampling: SamplingParams) -> SamplingParams:
        return sampling


class StopTokensIgnored(ChangesRequests):
    """Knows no stop tokens but the model's own."""

    def changed_sampling(self, sampling: SamplingParams) -> SamplingParams:
        return replace(sampling, stop_token_ids=())


class StopStringsIgnored(ChangesRequests):
    """Knows no stop strings."""

    def changed_sampling(self, sampling: SamplingParams) -> SamplingParams:
        return replace(sampling, stop=())


class MinTokensIgnored(ChangesRequests):
    """Ends as soon as it can."""

    def changed_sampling(self, sampling: SamplingParams) -> SamplingParams:
        return replace(sampling, min_tokens=0)


class IgnoreEosIgnored(ChangesRequests):
    """Always ends at an end of sequence."""

    def changed_sampling(self, sampling: SamplingParams) -> SamplingParams:
        return replace(sampling, ignore_eos=False)


class OneTokenTooMany(ChangesRequests):
    """Does not count the last token."""

    def changed_sampling(self, sampling: SamplingParams) -> SamplingParams:
        return replace(sampling, max_tokens=sampling.max_tokens + 1)


class LongPromptCut(ChangesRequests):
    """Keeps the end of a prompt that is too long."""

    def changed(self, request: RolloutRequest) -> RolloutRequest:
        return replace(request, prompt_ids=request.prompt_ids[-100:])


class ParametersOfTheFirst(ChangesRequests):
    """Serves everything that is in flight with the parameters of what came first."""

    in_flight: tuple[SamplingParams, ...] = ()

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        self.in_flight = (*self.in_flight, request.sampling)
        try:
            return await super().generate(request)
        finally:
            self.in_flight = self.in_flight[1:]

    def changed_sampling(self, sampling: SamplingParams) -> SamplingParams:
        return self.in_flight[0]


class CutResponseForgotten(ChangesRequests):
    """Begins every response anew."""

    def changed(self, request: RolloutRequest) -> RolloutRequest:
        return replace(request, response_ids=())


class CutResponseIsPrompt(ChangesRequests):
    """Takes the beginning of a response for the end of the prompt: same context, same budget, other positions."""

    def changed(self, request: RolloutRequest) -> RolloutRequest:
        prompt_ids = (*request.prompt_ids, *request.response_ids)
        left = replace(request.sampling, max_tokens=request.sampling.max_tokens - len(request.response_ids))
        return replace(request, prompt_ids=prompt_ids, response_ids=(), sampling=left)


class StopsWithinTheRest(SlicedRollout):
    """Looks for stop strings in what it draws itself."""

    async def initialize(self) -> None:
        await super().initialize()
        rules = self.rules

        def finish(request: RolloutRequest, tokens: Sequence[int]) -> FinishReason | None:
            reason = rules.finish(request, tokens)
            if reason == "stop" and request.sampling.stop and request.response_ids:
                return rules.finish(replace(request, response_ids=()), tokens[len(request.response_ids) :])
            return reason

        patched = SimpleNamespace(
            check=rules.check, forbidden=rules.forbidden, finish=finish, eos_token_ids=rules.eos_token_ids
        )
        self.rules = cast("StopRules", patched)


class FullResponseGoesOn(SlicedRollout):
    """Draws one token more for a response that is full."""

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        if len(request.response_ids) >= request.sampling.max_tokens:
            more = replace(request.sampling, max_tokens=len(request.response_ids) + 1)
            return await super().generate(replace(request, sampling=more))
        return await super().generate(request)


class EosDropped(SlicedRollout):
    """Strips the token that ended the response."""

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        output = await super().generate(request)
        if output.finish_reason != "stop" or output.token_ids[-1] not in self.rules.eos_token_ids:
            return output
        kept = len(output.token_ids) - 1
        return replace(
            output,
            token_ids=output.token_ids[:kept],
            log_probs=(output.log_probs or ())[:kept],
            versions=((output.versions[0][0], kept),),
        )


class PromptReturned(SlicedRollout):
    """Returns prompt and response."""

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        output = await super().generate(request)
        return replace(output, token_ids=(*request.prompt_ids, *output.token_ids))


class OneVersionForAll(SlicedRollout):
    """Counts all tokens to the version that drew the last one."""

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        output = await super().generate(request)
        return replace(output, versions=((output.versions[-1][0], len(output.token_ids)),))


class AbortIgnored(SlicedRollout):
    """Goes on for a caller who has given up."""

    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        pass


class AbortsEverybody(SlicedRollout):
    """Aborts all requests for the sake of one."""

    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        await super().abort()


class PauseIgnored(SlicedRollout):
    """Draws on while it is paused."""

    async def pause(self) -> None:
        pass


class BadRequestEndsTheBatch(SlicedRollout):
    """Aborts whatever is in flight when one request is refused."""

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        try:
            return await super().generate(request)
        except RlError:
            await self.abort()
            raise


class TurnsAway(SlicedRollout):
    """Answers with nothing when all places are taken."""

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        if self.loop is not None and len(self.loop._in_flight()) >= self.config.max_num_seqs:
            return RolloutOutput(
                request_id=request.request_id, token_ids=(), log_probs=(), finish_reason="abort", versions=()
            )
        return await super().generate(request)


class OutlivesItsCaller(SlicedRollout):
    """Goes on with a request whose caller was cancelled."""

    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        return await asyncio.shield(asyncio.ensure_future(super().generate(request)))


def rollout_fault(name: str, promise: str, caught_by: str, rollout: type[SlicedRollout], **suite: Any) -> Fault:
    """A fault that is planted as a class; ``suite`` are further attributes of the suite."""
    return Fault(name=name, promise=promise, caught_by=caught_by, overrides={"rollout_class": rollout, **suite})


FAULTS = (
    rollout_fault(
        "turned-away-when-full",
        "more requests than places are all answered",
        "test_many_requests_are_all_answered",
        TurnsAway,
    ),
    rollout_fault(
        "eos-dropped",
        "the end of sequence is part of the response",
        "test_end_of_sequence_ends_a_response_and_is_part_of_it",
        EosDropped,
    ),
    rollout_fault(
        "stop-tokens-ignored",
        "stop tokens end a response",
        "test_stop_tokens_end_a_response_and_are_part_of_it",
        StopTokensIgnored,
    ),
    rollout_fault(
        "stop-strings-ignored", "stop strings end a response", "test_stop_strings_end_a_response", StopStringsIgnored
    ),
    rollout_fault(
        "min-tokens-ignored", "min_tokens holds the end back", "test_min_tokens_holds_the_end_back", MinTokensIgnored
    ),
    rollout_fault(
        "ignore-eos-ignored", "ignore_eos goes on to max_tokens", "test_ignore_eos_goes_on", IgnoreEosIgnored
    ),
    rollout_fault(
        "one-token-too-many", "max_tokens counts every token", "test_max_tokens_counts_every_token", OneTokenTooMany
    ),
    rollout_fault(
        "long-prompt-cut", "a prompt that is too long is refused", "test_a_bad_request_fails_alone", LongPromptCut
    ),
    rollout_fault(
        "parameters-of-the-first",
        "requests in flight have their own parameters",
        "test_every_request_has_its_own_parameters",
        ParametersOfTheFirst,
    ),
    rollout_fault(
        "prompt-returned",
        "an output is the response alone",
        "test_an_output_has_the_shape_of_the_contract",
        PromptReturned,
    ),
    rollout_fault(
        "one-version-for-all",
        "each token counts to the version that drew it",
        "test_a_response_over_two_versions_says_so",
        OneVersionForAll,
    ),
    rollout_fault(
        "cut-response-forgotten",
        "a cut response goes on behind what there is",
        "test_a_cut_response_goes_on_as_if_it_had_not_been",
        CutResponseForgotten,
    ),
    rollout_fault(
        "cut-response-is-prompt",
        "positions count from the start of the response",
        "test_a_cut_response_goes_on_as_if_it_had_not_been",
        CutResponseIsPrompt,
    ),
    rollout_fault(
        "stops-within-the-rest",
        "a stop string may begin before the cut",
        "test_a_cut_response_goes_on_as_if_it_had_not_been",
        StopsWithinTheRest,
    ),
    rollout_fault(
        "full-response-goes-on",
        "a full response is refused",
        "test_a_response_that_is_full_cannot_go_on",
        FullResponseGoesOn,
    ),
    rollout_fault(
        "abort-ignored",
        "an aborted request comes back",
        "test_abort_returns_what_is_there",
        AbortIgnored,
        deadline_s=0.5,
    ),
    rollout_fault(
        "abort-hits-everybody",
        "others go on when one is aborted",
        "test_abort_returns_what_is_there",
        AbortsEverybody,
    ),
    rollout_fault(
        "pause-ignored", "a paused engine draws nothing", "test_pause_stops_and_resume_goes_on", PauseIgnored
    ),
    rollout_fault(
        "bad-request-ends-the-batch",
        "a bad request fails alone",
        "test_a_bad_request_fails_alone",
        BadRequestEndsTheBatch,
    ),
    rollout_fault(
        "request-outlives-its-caller",
        "a cancelled call frees its place",
        "test_a_caller_that_gives_up_disturbs_nobody",
        OutlivesItsCaller,
    ),
)
"""Faults of single requests."""
