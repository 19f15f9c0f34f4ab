"""What the engine suite asks of an implementer, for engines over the tiny model; an example for real engines."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from rl_core.contracts.engine import EngineRole, TrainingEngine
from torch import Tensor

from rl_testing.contracts.engine import TrainingEngineContract
from rl_testing.fakes import tiny_model
from rl_testing.fakes.engine_base import EngineBase
from rl_testing.fakes.engine_config import FakeEngineConfig


class TinyEngineContract(TrainingEngineContract):
    """``TrainingEngineContract`` with the tiny model; a subclass names the engine."""

    vocab_size = 13
    """Odd, so that two ranks share it unevenly."""

    rtol = 1e-10
    atol = 1e-12
    timeout_s = 20.0
    layout: Mapping[str, Any] = {}
    """Sizes for ``FakeEngineConfig``."""

    def model_section(self, *, tied: bool = False, other: bool = False) -> Any:
        """See ``EngineSuite``."""
        sizes = {
            "vocab_size": self.vocab_size,
            "hidden_size": 6 if other else 4,
            "num_layers": 3,
            "tie_word_embeddings": tied,
        }
        return SimpleNamespace(path="tiny", override_config=sizes)

    def plugin_section(self) -> FakeEngineConfig:
        """See ``EngineSuite``."""
        return FakeEngineConfig(**self.layout)

    def random_section(self) -> FakeEngineConfig:
        """See ``EngineSuite``."""
        return FakeEngineConfig(**self.layout, dropout=0.3)

    def tensor_shapes(self, *, tied: bool, role: EngineRole) -> Mapping[str, tuple[int, ...]]:
        """See ``EngineSuite``."""
        config = tiny_model.TinyConfig.from_model(self.model_section(tied=tied))
        return tiny_model.shapes(config, value_head=role in (EngineRole.VALUE, EngineRole.REWARD))

    def tied_names(self) -> Mapping[str, str]:
        """See ``EngineSuite``."""
        return {tiny_model.HEAD: tiny_model.EMBED}

    def reference_logits(self, weights: Mapping[str, Tensor], ids: Tensor) -> Tensor:
        """See ``EngineSuite``."""
        whole = {tiny_model.HEAD: weights[tiny_model.EMBED], **weights}
        return tiny_model.logits(whole, ids[None], 3)[0]

    def reference_values(self, weights: Mapping[str, Tensor], ids: Tensor) -> Tensor:
        """See ``EngineSuite``."""
        return (tiny_model.hidden_states(dict(weights), ids[None], 3)[0] @ weights[tiny_model.SCORE].T).squeeze(-1)

    @staticmethod
    def device_bytes(engine: TrainingEngine) -> int | None:
        """See ``EngineSuite``."""
        assert isinstance(engine, EngineBase)
        return engine.states.device_bytes()
