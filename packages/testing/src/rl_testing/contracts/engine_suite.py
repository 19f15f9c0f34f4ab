"""What an implementer of the engine suite overrides, and the helpers that its tests share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from rl_core.config.optim import OptimConfig
from rl_core.contracts.engine import EngineConfig, EngineRole, TrainingEngine
from rl_core.single_controller.base.collective import WorkerContext
from rl_dataproto import DataProto
from safetensors.torch import load_file
from torch import Tensor

from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import Row, as_batch, make_rows, slow_log_probs, slow_squares, slow_values
from rl_testing.contracts.ranks import Ranks, ThreadRanks, run_on_all
from rl_testing.contracts.suite import ContractSuite

T = TypeVar("T")

SGD = OptimConfig(optimizer="SGD", lr=0.1, weight_decay=0.0)
ADAM = OptimConfig(optimizer="AdamW", lr=0.01, weight_decay=0.1)


class EngineSuite(ContractSuite):
    """Base of the parts of ``TrainingEngineContract``."""

    # Override these.

    engine_class: type[TrainingEngine]
    """The engine; constructed as the contract says."""

    world_sizes: tuple[int, ...] = (1, 2, 4)
    """Numbers of workers every parallel test runs with. The first is the one others are compared with."""

    vocab_size: int
    """Of the model; token ids are drawn from all of it."""

    rtol: float = 1e-5
    """Largest relative error against the slow reference, and between ways to cut the work."""

    atol: float = 1e-7
    """Largest absolute error, for numbers near 0."""

    supports_value_role: bool = True
    supports_reward_role: bool = True
    supports_tied_weights: bool = True
    supports_adapter: bool = False

    timeout_s: float = 60.0
    """How long a rank waits for the others."""

    def model_section(self, *, tied: bool = False, other: bool = False) -> Any:
        """The ``model`` section of a small model: with tied embeddings; or another one of different shape."""
        raise NotImplementedError

    def plugin_section(self) -> Any:
        """The plugin's own section; None for its defaults."""
        return None

    def random_section(self) -> Any:
        """A plugin section that makes training draw random numbers (dropout); None if the engine never does."""
        return None

    def tensor_shapes(self, *, tied: bool, role: EngineRole) -> Mapping[str, tuple[int, ...]]:
        """Every tensor in the Hugging Face checkpoint of the small model, tied ones included."""
        raise NotImplementedError

    def tied_names(self) -> Mapping[str, str]:
        """With ``tied=True``: name -> name of the tensor whose storage it shares."""
        return {}

    def reference_logits(self, weights: Mapping[str, Tensor], ids: Tensor) -> Tensor:
        """[L] token ids -> [L, V] logits of the small model, slow and obvious, differentiable in ``weights``.

        ``weights`` holds what the weight stream sent: no tied tensors.
        """
        raise NotImplementedError

    def reference_values(self, weights: Mapping[str, Tensor], ids: Tensor) -> Tensor:
        """[L] token ids -> [L] outputs of the score head, differentiable in ``weights``."""
        raise NotImplementedError

    @staticmethod
    def device_bytes(engine: TrainingEngine) -> int | None:
        """Bytes ``engine`` really holds on the device; None where nobody can tell."""
        return None

    def make_ranks(self, role: EngineRole, world_size: int, config: EngineConfig, model: Any) -> Ranks[TrainingEngine]:
        """Workers with an engine each, not initialized. Override for engines that cannot share a process."""
        build = partial(self._build, role=role, model=model, config=config)
        return ThreadRanks(world_size, build, deadline_s=self.timeout_s)

    def _build(self, context: WorkerContext, *, role: EngineRole, model: Any, config: EngineConfig) -> TrainingEngine:
        return self.engine_class(role, model, config, context)

    # Do not override what follows.

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test that takes ``world_size`` with each of ``world_sizes``."""
        if "world_size" in metafunc.fixturenames:
            metafunc.parametrize("world_size", self.world_sizes)

    @pytest.fixture(autouse=True)
    def close_engines(self) -> Iterator[None]:
        """End every engine that a test started."""
        self._open: list[Ranks[TrainingEngine]] = []
        yield
        for ranks in self._open:
            ranks.close()

    @pytest.fixture
    def rows(self) -> list[Row]:
        """Seven sequences."""
        return make_rows(self.vocab_size)

    @pytest.fixture
    def batch(self, rows: list[Row]) -> DataProto:
        """The same as the controller sends them."""
        return as_batch(rows)

    def config(self, **changes: Any) -> EngineConfig:
        """SGD, everything in one micro-batch; with ``changes``."""
        return replace(EngineConfig(optim=SGD, plugin=self.plugin_section()), **changes)

    def build(
        self,
        world_size: int = 1,
        *,
        role: EngineRole = EngineRole.POLICY,
        model: Any = None,
        **changes: Any,
    ) -> Ranks[TrainingEngine]:
        """Engines that are not initialized."""
        ranks = self.make_ranks(role, world_size, self.config(**changes), model or self.model_section())
        self._open.append(ranks)
        return ranks

    def start(self, world_size: int = 1, **options: Any) -> Ranks[TrainingEngine]:
        """Initialized engines; options as for ``build``."""
        ranks = self.build(world_size, **options)
        run_on_all(ranks, calls.initialize)
        return ranks

    def ask(self, ranks: Ranks[TrainingEngine], call: Callable[..., T], **arguments: Any) -> list[T]:
        """Results of a call on every rank, in rank order."""
        return run_on_all(ranks, partial(call, **arguments))

    def refusals(self, ranks: Ranks[TrainingEngine], call: Callable[..., Any], **arguments: Any) -> list[Any]:
        """What a call returned or raised on every rank."""
        return list(ranks.outcomes(partial(call, **arguments)))

    def scores(
        self, ranks: Ranks[TrainingEngine], batch: DataProto, outputs: Collection[str]
    ) -> dict[str, list[Tensor]]:
        """``forward`` over all ranks, collected."""
        return calls.collected(self.ask(ranks, calls.forward, batch=batch, outputs=frozenset(outputs)))

    def weights(self, ranks: Ranks[TrainingEngine]) -> dict[str, Tensor]:
        """Weights as rank 0 streams them."""
        return self.ask(ranks, calls.stream)[0].weights

    def reference_columns(
        self, weights: Mapping[str, Tensor], rows: Sequence[Row], temperature: float = 1.0
    ) -> dict[str, list[Tensor]]:
        """Log-probs and entropy of every row by the slow implementation."""
        with torch.no_grad():
            pairs = [slow_log_probs(self.reference_logits, weights, row, temperature) for row in rows]
        return {"log_probs": [pair[0] for pair in pairs], "entropy": [pair[1] for pair in pairs]}

    def reference_squares(self, weights: Mapping[str, Tensor], rows: Sequence[Row], temperature: float) -> list[Tensor]:
        """Sums of squared probabilities of every row by the slow implementation."""
        with torch.no_grad():
            return [slow_squares(self.reference_logits, weights, row, temperature) for row in rows]

    def reference_value_rows(self, weights: Mapping[str, Tensor], rows: Sequence[Row]) -> list[Tensor]:
        """Values of every row by the slow implementation."""
        with torch.no_grad():
            return [slow_values(self.reference_values, weights, row) for row in rows]

    def assert_close(self, found: Any, expected: Any, what: str) -> None:
        """Numbers, tensors, and lists and dictionaries of them, equal within ``rtol`` and ``atol``."""
        torch.testing.assert_close(
            _wide(found), _wide(expected), rtol=self.rtol, atol=self.atol, check_dtype=False, msg=_titled(what)
        )

    def read_export(self, directory: Path) -> dict[str, Tensor]:
        """All tensors of an exported checkpoint."""
        weights: dict[str, Tensor] = {}
        for file in sorted(directory.glob("*.safetensors")):
            weights |= load_file(file)
        return weights


def same_bits(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """Names that are missing on one side or differ in any bit."""
    names = {*found, *expected}
    return sorted(
        name
        for name in names
        if name not in found or name not in expected or not torch.equal(found[name], expected[name])
    )


def _wide(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().double()
    if isinstance(value, Mapping):
        return {name: _wide(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_wide(entry) for entry in value]
    return value


def _titled(what: str) -> Callable[[str], str]:
    return lambda found: f"{what}: {found}"
