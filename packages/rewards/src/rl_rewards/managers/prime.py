"""``prime``: the name that PRIME's commands give to a manager with a pool of processes."""

from __future__ import annotations

from rl_core.scoring.manager import PooledRewardManager


class PrimeRewardManager(PooledRewardManager):
    """Scores single rows in the pool, as ``naive`` does here too."""
