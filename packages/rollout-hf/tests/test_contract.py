"""The engine keeps every promise of the rollout contract, for the families that must work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from rl_rollout_hf.server import HfRollout
from rl_testing.contracts.rollout import RolloutContract


class HfContract(RolloutContract):
    rollout_class = HfRollout
    model_type = "qwen2"
    # The engine computes in float32: log-probs down to -40 are exact to about 1e-5.
    log_prob_tolerance = 5e-5
    eos_token_ids = (90,)

    @pytest.fixture(autouse=True)
    def _helpers(self, tmp_path_factory, make_policy, make_sections):
        self.new_policy, self.new_sections, self.folders = make_policy, make_sections, tmp_path_factory

    def make_policy(self, *, tied: bool = False) -> Any:
        return self.new_policy(self.model_type, tied=tied)

    def make_sections(self, policy: Any, eos_token_ids: Sequence[int], shares_tied: bool | None = None) -> Any:
        folder = policy.save(self.folders.mktemp("model"), eos_token_ids, shares_tied=shares_tied)
        return self.new_sections(folder, max_model_len=4096, max_num_seqs=24)

    def tied_sections(self, policy: Any) -> Any:
        return [self.make_sections(policy, self.eos_token_ids, shares_tied=shares) for shares in (True, False)]


class TestQwen2(HfContract):
    pass


@pytest.mark.slow
class TestLlama(HfContract):
    model_type = "llama"


class TestGpt2(HfContract):
    model_type = "gpt2"
