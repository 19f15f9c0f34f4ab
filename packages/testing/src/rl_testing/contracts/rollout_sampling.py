"""Promises of a generation engine that samples from a policy: which tokens, with which probabilities."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

import pytest
import torch
from rl_core.contracts.rollout import RolloutOutput, RolloutRequest

from rl_testing.contracts.replica import Replica, ask
from rl_testing.contracts.rollout_base import RolloutSuite, with_sampling

_NUM_DRAWS = 256


class RolloutSamplingContract(RolloutSuite):
    """Draws and log-probs."""

    def crowd(self, **sampling: Any) -> list[RolloutRequest]:
        """Eight requests, two seeds a prompt."""
        return [
            ask(prompt, name=f"{row}-{seed}", seed=seed, max_tokens=8 + row, ignore_eos=True, **sampling)
            for row, prompt in enumerate(self.prompts)
            for seed in (3, 4)
        ]

    @pytest.mark.parametrize("temperature", [1.0, 0.6])
    def test_log_probs_are_those_of_the_weights(self, replica: Replica, temperature: float) -> None:
        """The returned log-probs equal a recomputation with the temperature applied.

        If this fails: the engine returns log-probs of unscaled logits, of another position, or its numbers differ more
        than ``log_prob_tolerance``.
        """
        requests = self.crowd(temperature=temperature)
        for request, output in zip(requests, replica.outputs(*requests), strict=True):
            assert output.log_probs is not None
            self.assert_log_probs(replica.policy, 1, request, output)

    @pytest.mark.parametrize("filters", [{"top_k": 3}, {"top_p": 0.4}, {"top_k": 5, "top_p": 0.6}])
    def test_filtered_draws_have_the_log_probs_of_the_filtered_distribution(
        self, replica: Replica, filters: dict[str, Any]
    ) -> None:
        """With top-k or top-p, tokens come from what is left, and so do their log-probs.

        If this fails: a filter is ignored, or log-probs are those of the whole distribution. Take them after filters
        and normalisation.
        """
        for request in self.crowd(temperature=0.8, **filters):
            output = replica.output(request)
            table = self.expected_log_probs(replica.policy, 1, request.prompt_ids, output, 0.8)
            for position, token in enumerate(output.token_ids):
                kept = _kept(table[position], **filters)
                assert token in kept
                expected = table[position][token] - torch.logsumexp(table[position][list(kept)], dim=0)
                assert output.log_probs is not None
                assert output.log_probs[position] == pytest.approx(float(expected), abs=self.log_prob_tolerance)

    def test_temperature_zero_takes_the_most_likely_token(self, replica: Replica) -> None:
        """Temperature 0 is greedy, whatever the seed.

        If this fails: 0 is replaced by a small temperature or by 1, or ties with the sampling path.
        """
        for prompt in self.prompts:
            outputs = [
                replica.output(ask(prompt, seed=seed, temperature=0.0, max_tokens=8, ignore_eos=True))
                for seed in (1, 2)
            ]
            assert outputs[0].token_ids == outputs[1].token_ids
            table = self.expected_log_probs(replica.policy, 1, prompt, outputs[0], 1.0)
            assert table.argmax(dim=1).tolist() == list(outputs[0].token_ids)

    @pytest.mark.parametrize("temperature", [1.0, 0.5])
    def test_draws_follow_the_distribution(self, replica: Replica, temperature: float) -> None:
        """Over many seeds, tokens come as often as their probabilities say.

        The mean log-prob of the drawn tokens must be minus the entropy, within 4.5 standard errors; seeds are fixed, so
        the outcome is too.

        If this fails: tokens are drawn from another distribution than the log-probs tell (another temperature, one that
        is filtered, or always the likeliest).
        """
        prompt = self.prompts[0]
        requests = [
            ask(prompt, name=str(seed), seed=seed, temperature=temperature, max_tokens=1) for seed in range(_NUM_DRAWS)
        ]
        drawn = torch.tensor([output.token_ids[0] for output in replica.outputs(*requests)])
        log_probs = torch.log_softmax(replica.policy.logits(1, prompt)[-1].double() / temperature, dim=-1)
        mean = (log_probs.exp() * log_probs).sum()
        deviation = ((log_probs.exp() * (log_probs - mean) ** 2).sum() / _NUM_DRAWS).sqrt()
        assert abs(float(log_probs[drawn].mean() - mean)) <= 4.5 * float(deviation)

    def test_draws_depend_on_the_seed_alone(self, replica: Replica) -> None:
        """A request gets the same tokens alone, in a crowd, in any order, and whatever was asked before.

        If this fails: requests share a random generator, or the seed is combined with a slot, a step or a counter of the
        engine.
        """
        requests = self.crowd()
        together = replica.outputs(*requests)
        alone = [replica.output(request) for request in requests]
        backwards = replica.outputs(*reversed(requests))[::-1]
        assert _tokens(together) == _tokens(alone) == _tokens(backwards)
        renamed = [with_fields(request, request_id=f"again-{request.request_id}") for request in requests]
        assert _tokens(replica.outputs(*renamed)) == _tokens(alone)

    def test_seeds_matter(self, replica: Replica) -> None:
        """Different seeds draw different responses from one prompt.

        If this fails: the seed is not used, so all samples of a group are the same and advantages are zero.
        """
        requests = [ask(self.prompts[0], name=str(seed), seed=seed, max_tokens=8, ignore_eos=True) for seed in range(8)]
        assert len(set(_tokens(replica.outputs(*requests)))) >= 6

    def test_large_seeds_are_different_seeds(self, replica: Replica) -> None:
        """Seeds use 63 bits: those that agree in their low 32 are still different.

        If this fails: the seed is cut to 32 bits; samples of different prompts or steps then share their draws.
        """
        seeds = (5, 5 + 2**32, 5 + 2**40, 5 + 2**62)
        requests = [ask(self.prompts[0], name=str(seed), seed=seed, max_tokens=8, ignore_eos=True) for seed in seeds]
        assert len(set(_tokens(replica.outputs(*requests)))) == len(seeds)

    def test_a_longer_response_begins_like_a_shorter_one(self, replica: Replica) -> None:
        """The draw at a position does not depend on how many tokens may follow.

        If this fails: ``max_tokens`` or the number of steps goes into the draws.
        """
        for request in self.crowd():
            tokens = replica.output(request).token_ids
            shorter = replica.output(with_sampling(request, max_tokens=5)).token_ids
            assert shorter == tokens[:5]

    def test_repeated_requests_are_the_same_to_the_bit(self, replica: Replica) -> None:
        """The same batch in the same order gives the same tokens and log-probs, bit for bit.

        If this fails: a cached prefix changes the numbers, or a kernel is not deterministic.
        """
        requests = self.crowd()
        first, second = replica.outputs(*requests), replica.outputs(*requests)
        assert [(output.token_ids, output.log_probs) for output in first] == [
            (output.token_ids, output.log_probs) for output in second
        ]


def _tokens(outputs: list[RolloutOutput]) -> list[tuple[int, ...]]:
    return [output.token_ids for output in outputs]


def _kept(log_probs: torch.Tensor, top_k: int = -1, top_p: float = 1.0) -> set[int]:
    """Token ids that top-k, then top-p among those, leave; a slow restatement of ``SamplingParams``."""
    ranked = sorted(range(len(log_probs)), key=lambda token: (-float(log_probs[token]), token))
    if top_k > 0:
        ranked = ranked[:top_k]
    total = sum(float(log_probs[token].exp()) for token in ranked)
    kept: set[int] = set()
    share = 0.0
    for token in ranked:
        kept.add(token)
        share += float(log_probs[token].exp()) / total
        if share >= top_p:
            break
    return kept
