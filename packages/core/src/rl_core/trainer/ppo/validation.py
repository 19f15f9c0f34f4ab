"""The validation line of the loop: answer the held-out prompts, score them, report and write down what came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rl_dataproto import DataProto

from rl_core.contracts.rollout import SamplingParams
from rl_core.errors import MissingRolloutError
from rl_core.trainer.ppo.reward import require_rewards
from rl_core.trainer.ppo.sampler import extras_as_columns, make_prompts
from rl_core.trainer.ppo.validation_metrics import ValidationAnswer, validation_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rl_core.config import PPOTrainerConfig
    from rl_core.contracts.reward import RewardResult
    from rl_core.data.prompts import PromptDataset

VALIDATION_STEP = 10**6
"""Stands for the step in uids and seeds, so that every validation of a run draws alike and none like training."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What came of a validation set.

    Attributes:
        prompts: one row for each answer that was asked for, answers to one prompt side by side.
        errors: for each of these rows why no answer came, None where one did.
        rows: int64, row of ``prompts`` of each row of ``batch``.
        batch: the answers that came, with the columns of their prompts.
        results: the reward of each row of ``batch``.
    """

    prompts: DataProto
    errors: Sequence[str | None]
    rows: np.ndarray
    batch: DataProto
    results: list[RewardResult]


class Validator:
    """Runs the validation set through generator and reward."""

    def __init__(
        self,
        config: PPOTrainerConfig,
        dataset: PromptDataset,
        generate: Callable[[DataProto], DataProto],
        score: Callable[[DataProto], list[RewardResult]],
    ) -> None:
        """Store the arguments.

        Args:
            config: the run's configuration.
            dataset: validation prompts.
            generate: ``generate_sequences`` of the actor-rollout worker group.
            score: the reward of each row.
        """
        self._config = config
        self._dataset = dataset
        self._generate = generate
        self._score = score

    def run(self) -> tuple[dict[str, float], DataProto, list[RewardResult]]:
        """Answer every prompt ``val_kwargs.n`` times.

        Returns:
            The metrics, the batch of answers, and one reward for each of its rows. A rollout or a reward that is missing
            is counted and left out of the statistics; it never counts as 0.

        Raises:
            MissingRewardError: more rewards are missing than ``trainer.max_failed_reward_fraction`` allows.
            MissingRolloutError: no prompt was answered at all.
        """
        answers = self.answer()
        missing = require_rewards(answers.results, self._config.trainer.max_failed_reward_fraction)
        asked = self._config.actor_rollout_ref.rollout.val_kwargs.n
        metrics = validation_metrics(_answers(answers.batch, answers.results), asked)
        metrics["val-aux/rollout/failed"] = float(len(answers.errors) - len(answers.rows))
        metrics["val-aux/reward/missing"] = float(missing)
        return metrics, answers.batch, answers.results

    def answer(self) -> Answers:
        """Answer every prompt ``val_kwargs.n`` times and score what came, whatever is missing.

        Raises:
            MissingRolloutError: no prompt was answered at all.
        """
        prompts = make_prompts(
            [self._dataset[index] for index in range(len(self._dataset))],
            step=VALIDATION_STEP,
            seed=self._config.trainer.seed,
            num_samples=self._config.actor_rollout_ref.rollout.val_kwargs.n,
            sampling=validation_sampling(self._config),
            deadline_s=self._config.trainer.rollout_deadline_s,
        )
        prompts.meta_info["validate"] = True
        outputs = self._generated(prompts)
        errors = outputs.non_tensor_batch["rollout_error"]
        kept = np.array([row for row, error in enumerate(errors) if error is None], dtype=np.int64)
        if not len(kept):
            msg = f"validation: none of {len(errors)} rollouts came; the first reason: {errors[0]}"
            raise MissingRolloutError(msg)
        batch = (
            prompts.select_idxs(kept)
            .select(meta_info_keys=[])
            .union(extras_as_columns(outputs.select_idxs(kept).select(meta_info_keys=[])))
        )
        return Answers(prompts, list(errors), kept, batch, self._score(batch))

    def _generated(self, prompts: DataProto) -> DataProto:
        """Answers to all prompts, ``data.val_batch_size`` prompts at a time; how many changes no answer."""
        at_a_time = self._config.data.val_batch_size
        size = at_a_time * self._config.actor_rollout_ref.rollout.val_kwargs.n if at_a_time else len(prompts)
        parts = [
            self._generate(prompts.slice(start, start + size)).select(meta_info_keys=[])
            for start in range(0, len(prompts), size)
        ]
        return parts[0] if len(parts) == 1 else DataProto.concat(parts)


def validation_sampling(config: PPOTrainerConfig) -> SamplingParams:
    """How validation answers are drawn: greedy unless ``val_kwargs.do_sample`` is on."""
    rollout, val = config.actor_rollout_ref.rollout, config.actor_rollout_ref.rollout.val_kwargs
    return SamplingParams(
        temperature=val.temperature if val.do_sample else 0.0,
        top_p=val.top_p,
        top_k=val.top_k,
        max_tokens=rollout.response_length or config.data.max_response_length,
        min_tokens=rollout.min_tokens,
        stop=tuple(rollout.stop),
        stop_token_ids=tuple(rollout.stop_token_ids),
        ignore_eos=rollout.ignore_eos,
    )


def _answers(batch: DataProto, results: Sequence[RewardResult]) -> list[ValidationAnswer]:
    columns: dict[str, Any] = batch.non_tensor_batch
    return [
        ValidationAnswer(str(columns["data_source"][row]), columns["uid"][row], result.score, result.extra)
        for row, result in enumerate(results)
        if result.score is not None
    ]
