"""Generation engines that break a promise about its draws."""

# A fault's class says what it does wrong; what its methods should do stands in the contract.
# ruff: noqa: D102

from __future__ import annotations

from dataclasses import replace

import numpy as np
from rl_core.contracts.rollout import FinishReason, RolloutRequest, SamplingParams

from rl_testing.fakes.draws import log_distribution
from rl_testing.fakes.model_slice import Floats
from rl_testing.fakes.serving import InFlight
from rl_testing.fakes.sliced_rollout import SlicedRollout
from rl_testing.faults.rollout_requests import ChangesRequests, rollout_fault


class SeedIgnored(ChangesRequests):
    """Draws the same whatever the seed."""

    def changed(self, request: RolloutRequest) -> RolloutRequest:
        return replace(request, seed=0)


class SeedPlusCounter(ChangesRequests):
    """Adds the number of requests so far to the seed."""

    num_requests = 0

    def changed(self, request: RolloutRequest) -> RolloutRequest:
        self.num_requests += 1
        return replace(request, seed=request.seed + self.num_requests)


class SeedCutTo32Bits(ChangesRequests):
    """Passes the low half of the seed on."""

    def changed(self, request: RolloutRequest) -> RolloutRequest:
        return replace(request, seed=request.seed % 2**32)


class SeedOfTheBudget(ChangesRequests):
    """Draws differently for another length limit."""

    def changed(self, request: RolloutRequest) -> RolloutRequest:
        return replace(request, seed=request.seed + request.sampling.max_tokens)


class _RewritesLogProbs(SlicedRollout):
    """Reports other log-probs than those of the distribution that it draws from."""

    def advance(self, item: InFlight) -> FinishReason | None:
        reason = super().advance(item)
        if self.model is not None:
            item.log_probs[-1] = float(self.rewritten(self.model.logits(item.state[1]), item)[item.tokens[-1]])
        return reason

    def rewritten(self, logits: Floats, item: InFlight) -> Floats:
        raise NotImplementedError


class LogProbsWithoutTemperature(_RewritesLogProbs):
    """Reports log-probs of the unscaled logits."""

    def rewritten(self, logits: Floats, item: InFlight) -> Floats:
        return log_distribution(logits, SamplingParams())


class LogProbsBeforeFilters(_RewritesLogProbs):
    """Reports log-probs of the whole distribution, whatever was filtered."""

    def rewritten(self, logits: Floats, item: InFlight) -> Floats:
        return log_distribution(logits, SamplingParams(temperature=item.request.sampling.temperature))


class LogProbsOfOneSlice(_RewritesLogProbs):
    """Normalises within the slice of the vocabulary that holds the token."""

    def rewritten(self, logits: Floats, item: InFlight) -> Floats:
        scaled = logits / item.request.sampling.temperature
        half = len(logits) // 2
        for part in (scaled[:half], scaled[half:]):
            part -= np.log(np.exp(part).sum())
        return scaled


class LastDigitsChange(_RewritesLogProbs):
    """Computes the last digits otherwise each time."""

    num_tokens = 0

    def rewritten(self, logits: Floats, item: InFlight) -> Floats:
        self.num_tokens += 1
        exact = log_distribution(logits, item.request.sampling, self.rules.forbidden(item.request.sampling, 0))
        return exact * (1 + 1e-14 * self.num_tokens)


class TemperatureIgnoredInDraws(_RewritesLogProbs):
    """Draws at temperature 1, and reports what the asked temperature would give."""

    def advance(self, item: InFlight) -> FinishReason | None:
        asked = item.request
        if asked.sampling.temperature == 0:
            return super().advance(item)
        self.asked = asked.sampling
        item.request = replace(asked, sampling=replace(asked.sampling, temperature=1.0))
        try:
            return super().advance(item)
        finally:
            item.request = asked

    def rewritten(self, logits: Floats, item: InFlight) -> Floats:
        return log_distribution(logits, self.asked if item.request.sampling.temperature else item.request.sampling)


class GreedyDrawsAnyway(ChangesRequests):
    """Takes temperature 0 for 1."""

    def changed_sampling(self, sampling: SamplingParams) -> SamplingParams:
        return replace(sampling, temperature=sampling.temperature or 1.0)


FAULTS = (
    rollout_fault("seed-ignored", "seeds matter", "test_seeds_matter", SeedIgnored),
    rollout_fault(
        "draws-depend-on-earlier-requests",
        "a draw depends on seed, position and distribution alone",
        "test_draws_depend_on_the_seed_alone",
        SeedPlusCounter,
    ),
    rollout_fault("seed-cut-to-32-bits", "seeds have 63 bits", "test_large_seeds_are_different_seeds", SeedCutTo32Bits),
    rollout_fault(
        "draws-depend-on-max-tokens",
        "a draw depends on seed, position and distribution alone",
        "test_a_longer_response_begins_like_a_shorter_one",
        SeedOfTheBudget,
    ),
    rollout_fault(
        "log-probs-without-temperature",
        "log-probs have the temperature applied",
        "test_log_probs_are_those_of_the_weights",
        LogProbsWithoutTemperature,
    ),
    rollout_fault(
        "log-probs-of-one-slice",
        "log-probs are normalised over the whole vocabulary",
        "test_log_probs_are_those_of_the_weights",
        LogProbsOfOneSlice,
        num_ranks=2,
    ),
    rollout_fault(
        "log-probs-before-filters",
        "log-probs belong to the distribution drawn from",
        "test_filtered_draws_have_the_log_probs_of_the_filtered_distribution",
        LogProbsBeforeFilters,
    ),
    rollout_fault(
        "temperature-ignored-in-draws",
        "tokens come as often as their log-probs say",
        "test_draws_follow_the_distribution",
        TemperatureIgnoredInDraws,
    ),
    rollout_fault(
        "greedy-draws-anyway",
        "temperature 0 takes the most likely token",
        "test_temperature_zero_takes_the_most_likely_token",
        GreedyDrawsAnyway,
    ),
    rollout_fault(
        "last-digits-change",
        "a repeated batch is the same to the bit",
        "test_repeated_requests_are_the_same_to_the_bit",
        LastDigitsChange,
    ),
)
"""Faults of draws and log-probs."""
