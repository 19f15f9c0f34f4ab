from __future__ import annotations

from rl_testing.fakes.resharding_sections import (
    EchoReshardingContract,
    FakeReshardingContract,
    PipelineReshardingContract,
)


class TestPlainToSliced(FakeReshardingContract):
    pass


class TestPipelineToSliced(PipelineReshardingContract):
    pass


class TestPlainToEcho(EchoReshardingContract):
    pass
