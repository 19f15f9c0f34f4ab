from __future__ import annotations

import pytest
from rl_core.scoring.manager import NaiveRewardManager
from rl_testing.contracts.reward_manager import RewardManagerDeadlineContract
from rl_testing.fakes.reward_manager import ThreadedRewardManager


class TestThreaded(RewardManagerDeadlineContract):
    manager_class = ThreadedRewardManager


@pytest.mark.heavy
class TestNaive(RewardManagerDeadlineContract):
    manager_class = NaiveRewardManager
