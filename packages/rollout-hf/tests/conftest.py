"""A tiny real model as policy, and engines that serve it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rl_core.config import RolloutConfig
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_engine.models import load_tokenizer
from rl_rollout_hf.config import HfRolloutConfig
from rl_rollout_hf.model import named_weights
from rl_rollout_hf.server import HfRollout
from rl_testing.contracts.ranks import ThreadRanks
from rl_testing.contracts.replica import Replica, ServingRank, build_serving_rank
from rl_testing.models import tiny_model, tiny_tokenizer
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

DEADLINE_S = 30.0


def word_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """Every id is a word of its own, so that any response has a text."""
    tokenizer = Tokenizer(WordLevel({f"w{number:03d}": number for number in range(vocab_size)}, unk_token="w000"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w000")


@functools.lru_cache(maxsize=16)
def reference(version: int, model_type: str, tied: bool, vocab_size: int) -> PreTrainedModel:
    """The model with the weights of ``version``; every tensor differs clearly from those of other versions."""
    model = tiny_model(
        model_type,
        vocab_size=vocab_size,
        tie_word_embeddings=tied,
        seed=version,
        max_position_embeddings=16_384,
        pad_token_id=0,
        eos_token_id=None,
    )
    generator = torch.Generator().manual_seed(version)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms and biases start as ones and zeros in every model
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model


class TinyPolicy:
    """See ``rl_testing.contracts.policy.PolicyModel``."""

    def __init__(self, model_type: str = "qwen2", *, tied: bool = False, vocab_size: int = 96) -> None:
        self.model_type = model_type
        self.tied = tied
        self.vocab_size = vocab_size
        self.tokenizer: PreTrainedTokenizerBase = word_tokenizer(vocab_size) if vocab_size < 260 else tiny_tokenizer()

    def model(self, version: int) -> PreTrainedModel:
        return reference(version, self.model_type, self.tied, self.vocab_size)

    def manifest(self) -> WeightManifest:
        first: dict[int, str] = {}
        entries = []
        for name, tensor in named_weights(self.model(1)):
            source = first.setdefault(id(tensor), name)
            dtype = str(tensor.dtype).removeprefix("torch.")
            tied_to = None if source == name else source
            entries.append(WeightSpec(name=name, shape=tuple(tensor.shape), dtype=dtype, tied_to=tied_to))
        return WeightManifest(entries=tuple(entries))

    def weights(self, version: int) -> dict[str, Tensor]:
        return {name: tensor.detach() for name, tensor in named_weights(self.model(version))}

    @torch.no_grad()
    def logits(self, version: int, token_ids: Sequence[int]) -> Tensor:
        return self.model(version)(torch.tensor([list(token_ids)]), use_cache=False).logits[0]

    def decode(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=False)

    def save(self, folder: Path, eos_token_ids: Sequence[int] = (), *, shares_tied: bool | None = None) -> Path:
        """Everything but the weights, which a generator must not need."""
        folder.mkdir(parents=True, exist_ok=True)
        config = self.model(1).config.__class__.from_dict(self.model(1).config.to_dict())
        config.tie_word_embeddings = self.tied if shares_tied is None else shares_tied
        config.architectures = [type(self.model(1)).__name__]
        config.save_pretrained(folder)
        if eos_token_ids:
            GenerationConfig(eos_token_id=list(eos_token_ids)).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        # A model type may have a tokenizer class that decodes in its own way.
        self.tokenizer = load_tokenizer(str(folder))
        return folder


def sections(folder: Path, *, own: dict[str, Any] | None = None, **rollout: Any) -> tuple[Any, Any]:
    """``model`` and ``rollout`` sections of a run."""
    chosen: Any = RolloutConfig(name="hf", **rollout)
    chosen.hf = HfRolloutConfig(**(own or {}))
    return SimpleNamespace(path=str(folder), trust_remote_code=False, override_config={}), chosen


@pytest.fixture(scope="session")
def make_policy() -> type[TinyPolicy]:
    """Makes policies."""
    return TinyPolicy


@pytest.fixture(scope="session")
def make_sections() -> Callable[..., tuple[Any, Any]]:
    """Makes sections."""
    return sections


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    """Starts engines with the weights of version 1 (or none, with ``version=None``), closed after the test."""
    opened: list[Replica] = []

    def start(
        policy: TinyPolicy | None = None,
        *,
        eos_token_ids: Sequence[int] = (1,),
        version: int | None = 1,
        device: str = "cpu",
        **options: Any,
    ) -> Replica:
        policy = policy or TinyPolicy()
        folder = policy.save(tmp_path / f"model-{len(opened)}", eos_token_ids)
        model, rollout = sections(folder, **{"max_model_len": 512, **options})
        build = build_serving_rank(
            lambda context: HfRollout(model, rollout, replace(context, device=device)), DEADLINE_S
        )
        opened.append(Replica(ThreadRanks(1, build, dispose=ServingRank.close, deadline_s=DEADLINE_S), policy))
        if version is not None:
            opened[-1].sync(version)
        return opened[-1]

    yield start
    for replica in opened:
        replica.ranks.close()


@pytest.fixture
def engine_of() -> Callable[[Replica], HfRollout]:
    """The engine object inside a replica."""
    return lambda replica: replica.ranks.run(0, lambda held: held.engine)
