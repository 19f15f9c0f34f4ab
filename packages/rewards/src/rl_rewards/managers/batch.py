"""``batch``: one call of the reward function for many rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_core.errors import ConfigError
from rl_core.scoring.manager import PooledRewardManager

from rl_rewards.managers.kwargs import batch_size, read_kwargs

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_core.config import PPOTrainerConfig
    from rl_core.scoring.call import Call


class BatchRewardManager(PooledRewardManager):
    """Calls a function that takes lists: all rows that are submitted together, or ``batch_size`` of them at a time.

    ``reward_model.timeout`` is the deadline of one call; if it is killed, all its rows are missing.
    """

    def __init__(self, reward_function: Callable[..., Any], tokenizer: Any, config: PPOTrainerConfig) -> None:
        """See ``PooledRewardManager``.

        Raises:
            ConfigError: the function takes single rows, or ``reward_kwargs`` holds something else than ``batch_size``.
        """
        given = read_kwargs(config.reward_model.reward_kwargs, {"batch_size": None}, "batch")
        self._batch_size = batch_size(given["batch_size"])
        super().__init__(reward_function, tokenizer, config)

    def batch_rows(self) -> int | None:
        """See ``PooledRewardManager``."""
        return self._batch_size

    def _call_of(self, data_source: str | None) -> tuple[int, Call]:
        key, call = super()._call_of(data_source)
        if not call.is_batched:
            msg = (
                "reward_model.reward_manager is batch, whose function takes lists (data_sources, solution_strs, ground_truths, "
                f"extra_infos); this one takes {', '.join(call.names)}. Name the arguments so, or take reward_manager=naive."
            )
            raise ConfigError(msg)
        return key, call
