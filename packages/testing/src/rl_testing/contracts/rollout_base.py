"""What the parts of the rollout suite share: what to override, and the replica fixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from rl_core.contracts.rollout import RolloutEngine, RolloutOutput, RolloutRequest
from rl_core.single_controller.base.collective import WorkerContext
from torch import Tensor

from rl_testing.contracts.policy import PolicyModel
from rl_testing.contracts.ranks import Ranks, ThreadRanks
from rl_testing.contracts.replica import Replica, ServingRank, ask, build_serving_rank
from rl_testing.contracts.suite import ContractSuite


class RolloutSuite(ContractSuite):
    """Override the first group; change the second where the engine is different; leave the third alone."""

    # 1. Override these.

    rollout_class: type[RolloutEngine]
    """The engine."""

    def make_policy(self, *, tied: bool = False) -> PolicyModel:
        """The model that is served, with its output layer tied to the embedding or not."""
        raise NotImplementedError

    def make_sections(self, policy: PolicyModel, eos_token_ids: Sequence[int]) -> tuple[Any, Any]:
        """The ``model`` and ``rollout`` sections for a replica of ``num_ranks`` workers.

        Args:
            policy: what is served.
            eos_token_ids: tokens that end a response of this replica.
        """
        raise NotImplementedError

    # 2. Override these where the defaults do not fit.

    num_ranks = 1
    """Workers of one replica."""

    samples_from_policy = True
    """False for an engine whose tokens do not come from the weights."""

    keeps_prefix_after_update = False
    """True for an engine that goes on from cached prefixes of older weights when it is resumed."""

    log_prob_tolerance = 1e-9
    """Largest difference from recomputed log-probs."""

    eos_token_ids: tuple[int, ...] = (1,)
    """Ends of sequence, unless a test needs others."""

    prompts: tuple[tuple[int, ...], ...] = ((5, 3, 9, 4), (7,), (2, 8, 6), (11, 10, 12, 13, 14, 15))
    """Four prompts; tokens within one prompt differ, and none is an end of sequence."""

    too_long_prompt = 10_000
    """Tokens that no prompt may have."""

    long_response = 2_000
    """Tokens that a response may have, and that take the engine a while."""

    deadline_s = 30.0
    """How long anything may take."""

    def tied_sections(self, policy: PolicyModel) -> Sequence[tuple[Any, Any]]:
        """Sections of each receiver of a tied model: those that share the tensor, and those that hold it twice."""
        return [self.make_sections(policy, self.eos_token_ids)]

    def make_ranks(self, sections: tuple[Any, Any]) -> Ranks[ServingRank]:
        """The workers of one replica; override for engines that cannot share a process."""
        model, rollout = sections
        rollout_class = self.rollout_class

        def make(context: WorkerContext) -> RolloutEngine:
            return rollout_class(model, rollout, context)

        return ThreadRanks(
            self.num_ranks,
            build_serving_rank(make, self.deadline_s),
            dispose=ServingRank.close,
            deadline_s=self.deadline_s,
        )

    # 3. Leave these alone.

    @pytest.fixture
    def policy(self) -> PolicyModel:
        """The untied model."""
        return self.make_policy()

    @pytest.fixture
    def open_replica(self) -> Iterator[Callable[[PolicyModel, tuple[Any, Any]], Replica]]:
        """Starts replicas that are closed after the test."""
        opened: list[Replica] = []

        def start(policy: PolicyModel, sections: tuple[Any, Any]) -> Replica:
            opened.append(Replica(self.make_ranks(sections), policy))
            return opened[-1]

        yield start
        for replica in opened:
            replica.ranks.close()

    @pytest.fixture
    def empty_replica(self, policy: PolicyModel, open_replica: Callable[..., Replica]) -> Replica:
        """A replica that has no weights yet."""
        return open_replica(policy, self.make_sections(policy, self.eos_token_ids))

    @pytest.fixture
    def replica(self, empty_replica: Replica) -> Replica:
        """A replica that serves version 1."""
        empty_replica.sync(1)
        return empty_replica

    @pytest.fixture
    def serve_with_eos(self, policy: PolicyModel, open_replica: Callable[..., Replica]) -> Callable[[int], Replica]:
        """Starts a replica of version 1 whose responses end with the given token."""

        def start(eos_token_id: int) -> Replica:
            replica = open_replica(policy, self.make_sections(policy, [eos_token_id]))
            replica.sync(1)
            return replica

        return start

    def prefix_of(self, replica: Replica, **sampling: Any) -> tuple[RolloutRequest, tuple[int, ...], int]:
        """A request, the tokens that it draws when nothing ends them, and the position of a token to end them with.

        The position is at least 2, and its token does not come earlier.
        """
        for seed in range(100):
            asked = ask(self.prompts[3], seed=seed, max_tokens=12, ignore_eos=True, **sampling)
            tokens = replica.output(asked).token_ids
            for position in range(2, 6):
                if tokens[position] not in (*tokens[:position], *self.eos_token_ids):
                    return asked, tokens, position
        pytest.fail("100 seeds gave no response of different tokens; does the engine use the seed, and min. 12 tokens?")

    def expected_log_probs(
        self, policy: PolicyModel, version: int, prompt: Sequence[int], output: RolloutOutput, temperature: float
    ) -> Tensor:
        """[T, V]: log-softmax at each response position, recomputed from the weights of ``version``."""
        logits = policy.logits(version, (*prompt, *output.token_ids))[len(prompt) - 1 : -1]
        return torch.log_softmax(logits.double() / temperature, dim=-1)

    def assert_log_probs(
        self, policy: PolicyModel, version: int, request: RolloutRequest, output: RolloutOutput
    ) -> None:
        """The engine's log-probs are those of the weights of ``version``, if it has any."""
        if not self.samples_from_policy or output.log_probs is None:
            return
        table = self.expected_log_probs(policy, version, request.prompt_ids, output, request.sampling.temperature)
        expected = table.gather(1, torch.tensor(output.token_ids)[:, None])[:, 0]
        found = torch.tensor(output.log_probs, dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=0, atol=self.log_prob_tolerance)


def with_sampling(request: RolloutRequest, **changes: Any) -> RolloutRequest:
    """``request`` with other sampling parameters."""
    return replace(request, sampling=replace(request.sampling, **changes))
