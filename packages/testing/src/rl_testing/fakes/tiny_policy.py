"""The tiny model as a suite's ground truth: which weights a version has, and what they say about every next token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from rl_core.contracts.weights import WeightManifest
from torch import Tensor

from rl_testing.fakes.tiny_model import TinyConfig, init_weights, logits, manifest
from rl_testing.fakes.tokenizer import TinyTokenizer


@dataclass(frozen=True, kw_only=True)
class TinyPolicy:
    """See ``rl_testing.contracts.policy.PolicyModel``."""

    config: TinyConfig = field(default_factory=TinyConfig)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self.config.vocab_size

    def manifest(self) -> WeightManifest:
        """What the trainer sends."""
        return manifest(self.config)

    def weights(self, version: int) -> dict[str, Tensor]:
        """Fresh weights for each version, the same ones each time."""
        return init_weights(replace(self.config, init_seed=version))

    def logits(self, version: int, token_ids: Sequence[int]) -> Tensor:
        """[T, V] float64: row t says what follows ``token_ids[:t + 1]``."""
        return logits(self.weights(version), torch.tensor([list(token_ids)]), self.config.num_layers)[0]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids."""
        return TinyTokenizer().decode(token_ids)

    def model_section(self, **changes: Any) -> Any:
        """A ``model`` section that makes an engine load this model, with sizes changed as asked."""
        sizes = vars(self.config) | changes
        return SimpleNamespace(path="tiny", override_config=sizes)
