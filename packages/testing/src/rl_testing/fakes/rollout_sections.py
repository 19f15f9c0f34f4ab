"""What the rollout suite asks of an implementer, for the fakes; an example for real engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl_core.config import RolloutConfig

from rl_testing.contracts.policy import PolicyModel
from rl_testing.contracts.rollout import RolloutContract, RolloutProtocolContract
from rl_testing.contracts.rollout_base import RolloutSuite
from rl_testing.fakes.echo_rollout import EchoRollout
from rl_testing.fakes.rollout_config import FakeRolloutConfig
from rl_testing.fakes.sliced_rollout import SlicedRollout
from rl_testing.fakes.tiny_model import TinyConfig
from rl_testing.fakes.tiny_policy import TinyPolicy


class _FakeSections(RolloutSuite):
    # So long that no machine is done before a test comes back to it.
    long_response = 50_000
    too_long_prompt = 100_000

    def make_policy(self, *, tied: bool = False) -> TinyPolicy:
        """The tiny model."""
        return TinyPolicy(config=TinyConfig(tie_word_embeddings=tied))

    def make_sections(
        self, policy: PolicyModel, eos_token_ids: Sequence[int], *, shares_tied: bool = False
    ) -> tuple[Any, Any]:
        """Sections of the fake rollouts."""
        rollout: Any = RolloutConfig(
            name="fake", tensor_model_parallel_size=self.num_ranks, max_num_seqs=24, max_model_len=self.too_long_prompt
        )
        rollout.fake_config = FakeRolloutConfig(eos_token_ids=list(eos_token_ids), with_token_ranks=True)
        sizes = vars(TinyConfig(tie_word_embeddings=shares_tied))
        return TinyPolicy(config=TinyConfig(**sizes)).model_section(), rollout

    def tied_sections(self, policy: PolicyModel) -> Sequence[tuple[Any, Any]]:
        """One receiver that shares the tied tensor, and one that holds it twice."""
        return [self.make_sections(policy, self.eos_token_ids, shares_tied=shares) for shares in (True, False)]


class SlicedRolloutContract(_FakeSections, RolloutContract):
    """The suite on the sliced fake."""

    rollout_class = SlicedRollout


class EchoRolloutContract(_FakeSections, RolloutProtocolContract):
    """The suite on the echo fake."""

    rollout_class = EchoRollout
