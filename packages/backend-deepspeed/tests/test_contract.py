"""The engine contract, on a real Qwen2 of a few thousand weights."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rl_backend_deepspeed.config import DeepSpeedConfig
from rl_backend_deepspeed.engine import DeepSpeedEngine
from rl_core.contracts.engine import EngineConfig, EngineRole, TrainingEngine
from rl_core.single_controller.base.collective import WorkerContext
from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine import TrainingEngineContract
from rl_testing.contracts.engine_outputs import OutputsContract
from rl_testing.contracts.engine_states import StatesContract
from rl_testing.contracts.engine_suite import EngineSuite
from rl_testing.contracts.engine_weights import WeightsContract
from rl_testing.contracts.processes import ProcessRanks
from rl_testing.contracts.ranks import Ranks, ThreadRanks
from rl_testing.models import save_tiny_model, tiny_model
from torch import Tensor
from torch.func import functional_call

VOCAB = 33
SIZES: dict[str, Any] = {"vocab_size": VOCAB, "hidden_size": 16, "num_heads": 2, "num_key_value_heads": 1}
EMBED, HEAD, SCORE = "model.embed_tokens.weight", "lm_head.weight", "score.weight"

_folders = tempfile.TemporaryDirectory(prefix="tiny-models-")


@functools.cache
def folder(tied: bool, other: bool) -> Path:
    sizes = SIZES | ({"hidden_size": 24} if other else {})
    name = f"tied_{tied}-other_{other}"
    return save_tiny_model(Path(_folders.name, name), tie_word_embeddings=tied, with_tokenizer=False, **sizes)


@functools.cache
def plain_model(tied: bool = False):
    """A transformers model to call with other weights: the slow, obvious reference."""
    return tiny_model(tie_word_embeddings=tied, **SIZES).requires_grad_(False)


def build_engine(
    context: WorkerContext, *, engine_class: Any, role: EngineRole, model: Any, config: EngineConfig
) -> TrainingEngine:
    return engine_class(role, model, config, context)


class DeepSpeedSuite(EngineSuite):
    engine_class = DeepSpeedEngine
    vocab_size = VOCAB
    rtol = 1e-5
    atol = 2e-6
    timeout_s = 60.0
    device_bytes = staticmethod(methodcaller("device_bytes"))

    def model_section(self, *, tied: bool = False, other: bool = False) -> Any:
        return SimpleNamespace(path=str(folder(tied, other)))

    def tensor_shapes(self, *, tied: bool, role: EngineRole) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in plain_model(tied).state_dict().items()}

    def tied_names(self) -> Mapping[str, str]:
        return {HEAD: EMBED}

    def reference_logits(self, weights: Mapping[str, Tensor], ids: Tensor) -> Tensor:
        whole = {HEAD: weights[EMBED], **weights} if HEAD not in weights else dict(weights)
        return functional_call(plain_model(), whole, (), {"input_ids": ids[None], "use_cache": False}).logits[0]

    def reference_values(self, weights: Mapping[str, Tensor], ids: Tensor) -> Tensor:
        backbone = {name.removeprefix("model."): tensor for name, tensor in weights.items() if name != SCORE}
        arguments = {"input_ids": ids[None], "use_cache": False}
        hidden = functional_call(plain_model().model, backbone, (), arguments).last_hidden_state[0]
        return (hidden @ weights[SCORE].T).squeeze(-1)

    def make_ranks(self, role: EngineRole, world_size: int, config: EngineConfig, model: Any) -> Ranks[TrainingEngine]:
        build = partial(build_engine, engine_class=self.engine_class, role=role, model=model, config=config)
        if world_size == 1:
            return ThreadRanks(1, build, dispose=calls.close, deadline_s=self.timeout_s)
        return ProcessRanks(world_size, build, dispose=calls.close, deadline_s=self.timeout_s)


class DeepSpeedContract(DeepSpeedSuite, TrainingEngineContract):
    """All weights are trained."""


class AdapterContract(DeepSpeedSuite, OutputsContract, WeightsContract, StatesContract):
    """Low-rank adapters are; the weights of the stream are merged. Their gradients are tested in ``test_lora``."""

    supports_adapter = True

    def model_section(self, *, tied: bool = False, other: bool = False) -> Any:
        return SimpleNamespace(path=str(folder(tied, other)), lora_rank=3, lora_alpha=6.0)


class TestOneRank(DeepSpeedContract):
    world_sizes = (1,)


class OneStage(DeepSpeedContract):
    """A stage that is not the default one."""

    stage: int

    def make_ranks(self, role: EngineRole, world_size: int, config: EngineConfig, model: Any) -> Ranks[TrainingEngine]:
        plugin = replace(config.plugin or DeepSpeedConfig(), zero_stage=self.stage)
        return super().make_ranks(role, world_size, replace(config, plugin=plugin), model)


@pytest.mark.slow
class TestStage3OfOneRank(OneStage):
    world_sizes = (1,)
    stage = 3


@pytest.mark.slow
class TestTwoRanks(DeepSpeedContract):
    world_sizes = (2,)


@pytest.mark.slow
class TestStage1OfTwoRanks(OneStage):
    world_sizes = (2,)
    stage = 1


@pytest.mark.slow
class TestStage3OfTwoRanks(OneStage):
    world_sizes = (2,)
    stage = 3


@pytest.mark.slow
class TestAdaptersOfOneRank(AdapterContract):
    world_sizes = (1,)


@pytest.mark.slow
class TestAdaptersOfTwoRanks(AdapterContract):
    world_sizes = (2,)
