"""``rate_limited``: for functions that ask a service which counts requests and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.scoring.manager import MAX_CONCURRENT, PooledRewardManager
from rl_core.scoring.pool import ScorePool

from rl_rewards.managers.rate_limit import RateLimit

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig


class RateLimitedRewardManager(PooledRewardManager):
    """Starts a call when ``max_concurrent``, ``max_rpm`` and ``max_tpm`` allow it. The deadline runs from then on."""

    def pool(self, config: PPOTrainerConfig) -> ScorePool:
        """See ``PooledRewardManager``."""
        settings = config.reward_model
        return ScorePool(
            num_workers=settings.num_workers,
            timeout_s=settings.timeout,
            memory_mb=settings.memory_limit_mb,
            max_concurrent=settings.max_concurrent or MAX_CONCURRENT,
            gate=RateLimit(
                settings.max_concurrent, settings.max_rpm, settings.max_tpm, settings.estimated_tokens_per_request
            ),
        )
