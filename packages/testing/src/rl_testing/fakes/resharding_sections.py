"""What the resharding suite asks of an implementer, for the fakes; an example for real engines."""

from __future__ import annotations

from typing import Any

from rl_core.config import RolloutConfig
from rl_core.config.optim import OptimConfig
from rl_core.contracts.engine import EngineConfig
from rl_core.resharding.generic import GenericResharding

from rl_testing.contracts.resharding import ReshardingContract
from rl_testing.fakes.echo_rollout import EchoRollout
from rl_testing.fakes.pipeline_engine import PipelineEngine
from rl_testing.fakes.plain_engine import PlainEngine
from rl_testing.fakes.sliced_rollout import SlicedRollout
from rl_testing.fakes.tiny_model import TinyConfig
from rl_testing.fakes.tiny_policy import TinyPolicy


class _FakeSections(ReshardingContract):
    resharding_class = GenericResharding
    vocab_size = TinyConfig.vocab_size

    def make_sections(self, num_ranks: int, replica_size: int, tied: bool) -> tuple[Any, Any, EngineConfig]:
        """Sections of the fakes."""
        model = TinyPolicy(config=TinyConfig(tie_word_embeddings=tied)).model_section()
        rollout = RolloutConfig(name="fake", tensor_model_parallel_size=replica_size)
        return model, rollout, EngineConfig(optim=OptimConfig(optimizer="SGD", lr=0.5, weight_decay=0.0))


class FakeReshardingContract(_FakeSections):
    """The plain fake trainer and the sliced fake generator."""

    engine_class = PlainEngine
    rollout_class = SlicedRollout


class PipelineReshardingContract(_FakeSections):
    """A trainer whose weights lie on several ranks, and slices that cut them otherwise."""

    engine_class = PipelineEngine
    rollout_class = SlicedRollout
    layouts = ((2, 1), (2, 2), (4, 2))


class EchoReshardingContract(_FakeSections):
    """A generator that has no weights, and still keeps every rule of the hand-over."""

    engine_class = PlainEngine
    rollout_class = EchoRollout
    layouts = ((1, 1), (2, 1))
