from __future__ import annotations

from rl_testing.contracts.reward import RewardCase, RewardContract
from rl_testing.fakes.reward import brevity, count_letter, exact_match


class TestCountLetter(RewardContract):
    compute_score = staticmethod(count_letter)
    cases = (
        RewardCase("abca", "a", 0.5),
        RewardCase("bbb", "b", 1.0),
        RewardCase("", "a", 0.0),
        RewardCase("aab", None, 2 / 3, extra_info={"index": 1}),
    )


class TestExactMatch(RewardContract):
    compute_score = staticmethod(exact_match)
    cases = (RewardCase(" 4\n", 4, 1.0), RewardCase("5", "4", 0.0), RewardCase("4", "4 ", 1.0))


class TestBrevity(RewardContract):
    compute_score = staticmethod(brevity)
    cases = (RewardCase("", "", 1.0), RewardCase("abc", "", 0.25))
