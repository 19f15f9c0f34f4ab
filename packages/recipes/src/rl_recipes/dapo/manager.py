"""The reward manager ``dapo``: another manager's scores, with a penalty for length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from rl_core.contracts.reward import RewardManager, RewardResult
from rl_core.plugins import get_registry
from rl_dataproto import lengths

from rl_recipes.dapo.overlong import OverlongSettings, overlong_penalty

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_dataproto import DataProto


class DapoRewardManager(RewardManager):
    """Scores by another manager, then adds what DAPO does about length.

    Every result gets ``acc``, the score before the penalty, unless the reward function gives one of its own: dynamic
    sampling compares that. With ``overlong_buffer_cfg.log`` also ``overlong_reward``, the penalty, and ``overlong``,
    whether there is one.
    """

    def __init__(self, reward_function: Callable[..., Any], tokenizer: Any, config: PPOTrainerConfig) -> None:
        """Read ``reward_model.reward_kwargs`` and make the manager that scores.

        Args:
            reward_function: see ``rl_core.contracts.reward``.
            tokenizer: decodes responses.
            config: the run's configuration.

        Raises:
            ConfigError: ``reward_kwargs`` has keys or values that cannot be.
        """
        self._settings = OverlongSettings.of(config.reward_model.reward_kwargs, config.data.max_response_length)
        scorer = cast("Callable[..., RewardManager]", get_registry().load("reward_manager", self._settings.scored_by))
        self._scorer = scorer(reward_function, tokenizer, config)

    def submit(self, rows: DataProto) -> None:
        """See ``RewardManager``."""
        self._scorer.submit(rows)

    def collect(self, batch: DataProto) -> list[RewardResult]:
        """See ``RewardManager``; a missing reward stays missing."""
        token_counts = lengths(batch.batch["responses"]).tolist()
        reasons = batch.non_tensor_batch.get("finish_reason")
        results = self._scorer.collect(batch)
        return [
            self._shaped(result, num_tokens, None if reasons is None else reasons[row])
            for row, (result, num_tokens) in enumerate(zip(results, token_counts, strict=True))
        ]

    def close(self) -> None:
        """See ``RewardManager``."""
        self._scorer.close()

    def _shaped(self, result: RewardResult, num_tokens: int, finish_reason: str | None) -> RewardResult:
        settings = self._settings
        if result.score is None:
            return result
        penalty = 0.0
        if settings.is_enabled:
            penalty = overlong_penalty(num_tokens, settings.max_length, settings.buffer, settings.factor)
        extra = {"acc": result.score, **result.extra}
        if settings.is_logged:
            extra |= {"overlong_reward": penalty, "overlong": penalty < 0}
        # Without a reason to go by, a response as long as the limit counts as cut off.
        is_cut = num_tokens >= settings.max_length if finish_reason is None else finish_reason == "length"
        return replace(
            result,
            score=result.score + penalty,
            extra=extra,
            is_trained=result.is_trained and not (settings.filters and is_cut),
        )
