from __future__ import annotations

from rl_testing.fakes.rollout_sections import EchoRolloutContract, SlicedRolloutContract


class TestOneRank(SlicedRolloutContract):
    pass


class TestTwoRanks(SlicedRolloutContract):
    num_ranks = 2


class TestFiveRanksOfUnevenSlices(SlicedRolloutContract):
    num_ranks = 5


class TestEcho(EchoRolloutContract):
    pass
