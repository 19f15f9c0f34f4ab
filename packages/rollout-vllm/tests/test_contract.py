"""The engine keeps every promise of the rollout contract, on vLLM's CPU build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from rl_rollout_vllm.server import VllmRollout
from rl_testing.contracts.rollout import RolloutContract

pytestmark = pytest.mark.heavy


class VllmContract(RolloutContract):
    rollout_class = VllmRollout
    model_type = "qwen2"
    # The engine computes in float32, in kernels of its own.
    log_prob_tolerance = 5e-4
    eos_token_ids = (90,)
    deadline_s = 120.0

    @pytest.fixture(autouse=True)
    def _helpers(self, tmp_path_factory, make_policy, make_sections, make_ranks):
        self.new_policy, self.new_sections, self.folders = make_policy, make_sections, tmp_path_factory
        self.new_ranks = make_ranks

    def make_policy(self, *, tied: bool = False) -> Any:
        return self.new_policy(self.model_type, tied=tied)

    def make_sections(self, policy: Any, eos_token_ids: Sequence[int], shares_tied: bool | None = None) -> Any:
        folder = policy.save(self.folders.mktemp("model"), eos_token_ids, shares_tied=shares_tied)
        return self.new_sections(folder, tensor_model_parallel_size=self.num_ranks)

    def make_ranks(self, sections: Any) -> Any:
        return self.new_ranks(sections, self.num_ranks)

    def tied_sections(self, policy: Any) -> Any:
        return [self.make_sections(policy, self.eos_token_ids, shares_tied=shares) for shares in (True, False)]


class TestQwen2(VllmContract):
    pass


@pytest.mark.slow
class TestTwoWorkers(VllmContract):
    num_ranks = 2
