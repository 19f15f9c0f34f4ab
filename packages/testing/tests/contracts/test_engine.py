from __future__ import annotations

import pickle
from typing import Any, ClassVar

from rl_testing.fakes.engine_sections import TinyEngineContract
from rl_testing.fakes.pipeline_engine import PipelineEngine
from rl_testing.fakes.plain_engine import PlainEngine


class TestPlainEngine(TinyEngineContract):
    engine_class = PlainEngine


class TestPipelineEngine(TinyEngineContract):
    engine_class = PipelineEngine


class TestDataParallelPipelines(TinyEngineContract):
    engine_class = PipelineEngine
    world_sizes = (4,)
    layout: ClassVar = {"pipeline_size": 2}


class TestDataParallelSharedVocabulary(TinyEngineContract):
    engine_class = PipelineEngine
    world_sizes = (4,)
    layout: ClassVar = {"vocab_parallel_size": 2}


class PicklingRanks:
    """What crosses to a rank, and back, is pickled, as if it were another process."""

    def __init__(self, ranks: Any) -> None:
        self.ranks = ranks
        self.size = ranks.size

    def outcomes(self, call: Any) -> list[Any]:
        return pickle.loads(pickle.dumps(self.ranks.outcomes(pickle.loads(pickle.dumps(call)))))

    def run(self, rank: int, call: Any) -> Any:
        return pickle.loads(pickle.dumps(self.ranks.run(rank, pickle.loads(pickle.dumps(call)))))

    def close(self) -> None:
        self.ranks.close()


class TestEnginesOfOtherProcesses(TinyEngineContract):
    engine_class = PlainEngine
    world_sizes = (2,)

    def make_ranks(self, role: Any, world_size: int, config: Any, model: Any) -> PicklingRanks:
        return PicklingRanks(super().make_ranks(role, world_size, config, model))
