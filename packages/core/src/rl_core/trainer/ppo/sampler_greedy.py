"""A greedy response to each prompt, drawn in the same generation as the sampled ones; its reward is a baseline.

Whoever draws prompts adds the row (``make_prompts``). Here it leaves the batch again: it is scored, and what it is worth goes
to the sampled rows of its prompt as the column ``reward_baselines``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from rl_dataproto import DataProto

from rl_core.contracts.sampler import BatchSource, PromptGroup
from rl_core.errors import MissingRolloutError
from rl_core.metrics import Metric
from rl_core.trainer.ppo.reward import require_rewards
from rl_core.trainer.ppo.seeding import is_greedy
from rl_core.trainer.ppo.step import METRICS_KEY
from rl_core.workers.rollout_rows import SAMPLING_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_core.config import PPOTrainerConfig
    from rl_core.contracts.reward import RewardResult

BASELINES_KEY: Final = "reward_baselines"
"""float64 column [B]: reward of the greedy response to the row's prompt; NaN where it is missing."""


class GreedyBaseline(BatchSource):
    """Takes the greedy rows out of a sampler's batches."""

    def __init__(
        self,
        inner: BatchSource,
        config: PPOTrainerConfig,
        score: Callable[[DataProto], list[RewardResult]],
        *,
        is_needed: bool,
    ) -> None:
        """Store the arguments.

        Args:
            inner: its batches have a greedy row for each prompt.
            config: the run's configuration.
            score: the reward of each row.
            is_needed: the advantage estimator works on the baselines, so a row without one is left out.
        """
        self._inner = inner
        self._config = config
        self._score = score
        self._is_needed = is_needed

    @property
    def groups(self) -> list[PromptGroup]:  # type: ignore[override]
        """See ``BatchSource``."""
        return self._inner.groups

    def next(self) -> DataProto:
        """See ``BatchSource``.

        Raises:
            MissingRolloutError: more greedy responses are missing than ``trainer.max_failed_rollout_fraction`` allows.
            MissingRewardError: more of their rewards are missing than ``trainer.max_failed_reward_fraction`` allows.
        """
        batch = self._inner.next()
        metrics = batch.meta_info.pop(METRICS_KEY, {})
        if SAMPLING_KEY in batch.non_tensor_batch:
            batch.pop(non_tensor_batch_keys=[SAMPLING_KEY])
        marks = np.array([is_greedy(name) for name in batch.non_tensor_batch["request_id"]], dtype=bool)
        greedy, sampled = batch.select_idxs(np.flatnonzero(marks)), batch.select_idxs(np.flatnonzero(~marks))
        self._require_greedy(greedy, batch)
        results = self._score(greedy)
        require_rewards(results, self._config.trainer.max_failed_reward_fraction)
        scores = {
            uid: result.score
            for uid, result in zip(greedy.non_tensor_batch["uid"], results, strict=True)
            if result.score is not None
        }
        column = [scores.get(uid, float("nan")) for uid in sampled.non_tensor_batch["uid"]]
        baselines = torch.tensor(column, dtype=torch.float64)
        sampled = sampled.union(DataProto.from_dict(tensors={BASELINES_KEY: baselines}))
        num_prompts = len(set(batch.non_tensor_batch["uid"]))
        metrics |= {
            "rollout/greedy_reward/mean": Metric(float(np.mean(list(scores.values()))), "mean", count=len(scores)),
            "rollout/greedy_missing": Metric(num_prompts - len(scores), "sum"),
        }
        if self._is_needed:
            metrics["rollout/no_baseline"] = Metric(int(baselines.isnan().sum()), "sum")
            sampled = sampled.select_idxs(np.flatnonzero(~baselines.isnan().numpy()))
        sampled.meta_info[METRICS_KEY] = metrics
        return sampled

    def _require_greedy(self, greedy: DataProto, batch: DataProto) -> None:
        limit = self._config.trainer.max_failed_rollout_fraction
        num_prompts = len(set(batch.non_tensor_batch["uid"]))
        num_missing = num_prompts - len(greedy)
        if num_missing > limit * num_prompts or num_missing == num_prompts:
            msg = (
                f"{num_missing} of {num_prompts} greedy responses are missing (trainer.max_failed_rollout_fraction is "
                f"{limit}); actor_rollout_ref.rollout.greedy_baseline is on, so each prompt needs one"
            )
            raise MissingRolloutError(msg)

    def state_dict(self) -> dict[str, Any]:
        """See ``Stateful``: nothing is kept between steps."""
        return self._inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Stateful``."""
        self._inner.load_state_dict(state)
