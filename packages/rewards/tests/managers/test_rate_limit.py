import pytest
from rl_core.contracts.reward import RewardResult
from rl_rewards.managers.rate_limit import RateLimit


def start(limit, *times):
    for now in times:
        assert limit.wait_s(now) == 0
        limit.started(now)


def test_no_limits_never_wait():
    limit = RateLimit(None, None, None, 10)
    start(limit, *[0.0] * 100)
    assert limit.wait_s(0.0) == 0


def test_no_minute_has_more_calls_than_allowed():
    limit = RateLimit(None, 3, None, 10)
    start(limit, 0.0, 10.0, 20.0)
    assert limit.wait_s(30.0) == pytest.approx(30.0)
    start(limit, 60.0)
    assert limit.wait_s(61.0) == pytest.approx(9.0)


def test_tokens_count_as_estimated_and_then_as_said():
    limit = RateLimit(None, None, 100, 40)
    start(limit, 0.0, 1.0)
    assert limit.wait_s(2.0) == pytest.approx(58.0)
    limit.ended([RewardResult(1.0, {"total_tokens": 5})], 3.0)
    start(limit, 3.0)
    limit.ended([RewardResult(1.0, {"total_tokens": 95})], 4.0)
    assert limit.wait_s(5.0) > 55


def test_one_call_may_exceed_the_minute():
    limit = RateLimit(None, None, 10, 40)
    start(limit, 0.0)
    assert limit.wait_s(1.0) == pytest.approx(59.0)
    start(limit, 60.0)


def test_calls_at_once():
    limit = RateLimit(2, None, None, 10)
    start(limit, 0.0, 0.0)
    assert limit.wait_s(0.0) > 0
    limit.ended([], 1.0)
    assert limit.wait_s(1.0) == 0
