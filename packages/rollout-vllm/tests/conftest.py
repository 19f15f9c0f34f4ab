"""A model of a few layers, and started engines that replicas take over from one another: a start takes many seconds."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rl_core.config import RolloutConfig
from rl_core.contracts.rollout import RolloutEngine
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_core.single_controller.base.collective import WorkerContext
from rl_core.workers.async_runner import AsyncRunner
from rl_engine.models import load_tokenizer
from rl_rollout_vllm.config import VllmRolloutConfig
from rl_rollout_vllm.engine import Engine, start_engine
from rl_rollout_vllm.server import VllmRollout
from rl_testing.contracts.ranks import ThreadRanks
from rl_testing.contracts.replica import Replica, ServingRank
from rl_testing.models import tiny_model
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast

DEADLINE_S = 240.0
VOCAB_SIZE = 96
MAX_IDLE = 3


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Every id is a word of its own, so that any response has a text."""
    tokenizer = Tokenizer(WordLevel({f"w{number:03d}": number for number in range(VOCAB_SIZE)}, unk_token="w000"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w000")


@functools.lru_cache(maxsize=16)
def reference(version: int, model_type: str, tied: bool) -> PreTrainedModel:
    """The model with the weights of ``version``; every tensor differs clearly from those of other versions."""
    model = tiny_model(
        model_type,
        vocab_size=VOCAB_SIZE,
        hidden_size=128,  # heads of 32: vLLM's CPU attention has no smaller ones
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

    vocab_size = VOCAB_SIZE

    def __init__(self, model_type: str = "qwen2", *, tied: bool = False) -> None:
        self.model_type = model_type
        self.tied = tied
        self.tokenizer: Any = word_tokenizer()

    def model(self, version: int) -> PreTrainedModel:
        return reference(version, self.model_type, self.tied)

    def manifest(self) -> WeightManifest:
        first: dict[int, str] = {}
        entries = []
        for name, tensor in self.model(1).named_parameters(remove_duplicate=False):
            source = first.setdefault(id(tensor), name)
            tied_to = None if source == name else source
            entries.append(WeightSpec(name=name, shape=tuple(tensor.shape), dtype="float32", tied_to=tied_to))
        return WeightManifest(entries=tuple(entries))

    def weights(self, version: int) -> dict[str, Tensor]:
        return {name: value.detach() for name, value in self.model(version).named_parameters(remove_duplicate=False)}

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
        self.tokenizer = load_tokenizer(str(folder))
        return folder


def sections(folder: Path, *, own: Mapping[str, Any] | None = None, **rollout: Any) -> tuple[Any, Any]:
    """``model`` and ``rollout`` sections of a run."""
    chosen: Any = RolloutConfig(name="vllm", **{"max_model_len": 4096, "max_num_seqs": 24, **rollout})
    chosen.vllm = VllmRolloutConfig(**{"cache_gib": 0.25, **(own or {})})
    model = SimpleNamespace(path=str(folder), trust_remote_code=False, override_config={}, lora_rank=0)
    return model, chosen


class EnginePool:
    """Engines that run, with what they were started with; all of them live on the pool's event loop."""

    def __init__(self) -> None:
        self.runner = AsyncRunner("engine-pool", deadline_s=DEADLINE_S)
        self.idle: list[tuple[str, Engine]] = []

    async def start(self, arguments: Mapping[str, Any], variables: Mapping[str, str | None]) -> Engine:
        """One of the idle engines, or a new one."""
        config = Path(arguments["model"], "config.json").read_text()
        key = json.dumps([{**arguments, "model": config}, dict(variables)], sort_keys=True)
        for entry in self.idle:
            if entry[0] == key:
                self.idle.remove(entry)
                return entry[1]
        while len(self.idle) >= MAX_IDLE:
            await self.idle.pop(0)[1].end()
        engine = await start_engine(arguments, variables)
        engine.end, engine.close = engine.close, functools.partial(self.take_back, key, engine)
        return engine

    async def take_back(self, key: str, engine: Engine) -> None:
        """Make it as it was when it had started."""
        if engine.is_dead:
            await engine.end()
            return
        await engine.resume()
        await engine.forget_prefixes()
        self.idle.append((key, engine))

    async def end(self) -> None:
        """End them all."""
        for _, engine in self.idle:
            await engine.end()


class PooledRollout(VllmRollout):
    """Takes its engine from the pool. A whole run must not: its event loop ends with it."""

    def __init__(self, model: Any, rollout: Any, context: WorkerContext, pool: EnginePool) -> None:
        super().__init__(model, rollout, context)
        self._pool = pool

    async def _start(self, arguments: Mapping[str, Any], variables: Mapping[str, str | None]) -> Engine:
        return await self._pool.start(arguments, variables)


class PooledRank(ServingRank):
    """A rank whose engine lives on a loop that outlives it."""

    def __init__(self, engine: RolloutEngine, runner: AsyncRunner) -> None:
        self.engine, self.tasks = engine, {}
        self._runner, self._deadline_s = runner, DEADLINE_S
        self.run(engine.initialize())

    def close(self) -> None:
        self.run(self.engine.close())


@pytest.fixture(scope="session")
def pool() -> Iterator[EnginePool]:
    """Started engines."""
    engines = EnginePool()
    yield engines
    engines.runner.run(engines.end())
    engines.runner.close()


@pytest.fixture(scope="session")
def make_ranks(pool: EnginePool) -> Callable[[tuple[Any, Any], int], ThreadRanks[ServingRank]]:
    """Starts the workers of a replica."""

    def make(chosen: tuple[Any, Any], num_ranks: int) -> ThreadRanks[ServingRank]:
        def build(context: WorkerContext) -> ServingRank:
            runner = AsyncRunner(f"rank-{context.rank}") if context.rank else pool.runner
            return PooledRank(PooledRollout(*chosen, context, pool), runner)

        return ThreadRanks(num_ranks, build, dispose=PooledRank.close, deadline_s=DEADLINE_S)

    return make


@pytest.fixture(scope="session")
def make_policy() -> type[TinyPolicy]:
    """Makes policies."""
    return TinyPolicy


@pytest.fixture(scope="session")
def make_sections() -> Callable[..., tuple[Any, Any]]:
    """Makes sections."""
    return sections


@pytest.fixture
def serve(tmp_path: Path, make_ranks: Callable[..., Any]) -> Iterator[Callable[..., Replica]]:
    """Starts replicas with the weights of version 1 (or none, with ``version=None``), closed after the test."""
    opened: list[Replica] = []

    def start(
        policy: TinyPolicy | None = None,
        *,
        eos_token_ids: Sequence[int] = (90,),
        version: int | None = 1,
        num_ranks: int = 1,
        **options: Any,
    ) -> Replica:
        policy = policy or TinyPolicy()
        folder = policy.save(tmp_path / f"model-{len(opened)}", eos_token_ids)
        chosen = sections(folder, tensor_model_parallel_size=num_ranks, **options)
        opened.append(Replica(make_ranks(chosen, num_ranks), policy))
        if version is not None:
            opened[-1].sync(version)
        return opened[-1]

    yield start
    for replica in opened:
        replica.ranks.close()


@pytest.fixture
def engine_of() -> Callable[[Replica], VllmRollout]:
    """The engine object on the lead."""
    return lambda replica: replica.ranks.run(0, lambda held: held.engine)
