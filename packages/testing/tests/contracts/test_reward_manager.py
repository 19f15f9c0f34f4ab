from __future__ import annotations

from rl_core.trainer.ppo.reward import NaiveRewardManager
from rl_testing.contracts.reward_manager import RewardManagerContract, RewardManagerDeadlineContract
from rl_testing.fakes.reward_manager import ThreadedRewardManager


class TestThreaded(RewardManagerDeadlineContract):
    manager_class = ThreadedRewardManager


class TestNaive(RewardManagerContract):
    manager_class = NaiveRewardManager
