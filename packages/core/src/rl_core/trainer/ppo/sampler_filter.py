"""Dynamic sampling: go on drawing until a step has enough prompts whose responses differ in their reward.

A group whose rewards are all equal has advantage 0 under every estimator that compares the responses to one prompt: its
rows would only make the batch look larger than it is.

Source: Yu et al. 2025, arXiv:2503.14476, section 3.2, eq. 11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rl_dataproto import DataProto, object_array

from rl_core.contracts.sampler import BatchSource, PromptGroup
from rl_core.errors import DataError, FilteredGroupsError
from rl_core.metrics import Metric, merge_metrics
from rl_core.trainer.ppo.reward import REWARD_RESULT_KEY, require_rewards
from rl_core.trainer.ppo.step import METRICS_KEY

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.contracts.reward import RewardResult

SCORE_METRICS: Final = ("reward", "score", "seq_reward", "seq_final_reward")
"""Values of ``algorithm.filter_groups.metric`` that mean the reward itself, before any KL penalty."""


class Verdict(StrEnum):
    """What becomes of a group; the values are metric names."""

    KEPT = "kept"
    ALL_EQUAL = "dropped_all_equal"
    SINGLE = "dropped_single"
    """One response with a value: nothing to compare it with."""
    NO_REWARD = "dropped_no_reward"


@dataclass(slots=True)
class Counts:
    """What the generations of one step have brought so far."""

    verdicts: dict[Verdict, int] = field(default_factory=lambda: dict.fromkeys(Verdict, 0))
    all_zero: int = 0
    all_one: int = 0
    num_batches: int = 0
    missing_rewards: int = 0
    surplus_groups: int = 0
    surplus_samples: int = 0

    def add(self, values: Sequence[float]) -> Verdict:
        """Judge a group by the values that its responses have, and count it."""
        verdict = judge(values)
        self.verdicts[verdict] += 1
        if verdict is Verdict.ALL_EQUAL:
            self.all_zero += values[0] == 0
            self.all_one += values[0] == 1
        return verdict

    def __str__(self) -> str:
        """For an error: the share of each kind says what is wrong with the data or the reward."""
        total, equal = sum(self.verdicts.values()), self.verdicts[Verdict.ALL_EQUAL]
        other = self.verdicts[Verdict.SINGLE] + self.verdicts[Verdict.NO_REWARD]
        counts = (self.verdicts[Verdict.KEPT], equal, self.all_zero, self.all_one, other)
        shares = [f"{count} ({count / max(total, 1):.0%})" for count in counts]
        return (
            f"of {total} groups {shares[0]} differ; all equal: {shares[1]}, of these all 0: {shares[2]}, all 1: {shares[3]}; "
            f"with one reward or none: {shares[4]}"
        )

    def metrics(self) -> dict[str, Metric]:
        """All under ``training/filter_groups/``; ``kept`` are the groups that train."""
        values = {str(verdict): count for verdict, count in self.verdicts.items()} | {
            "kept": self.verdicts[Verdict.KEPT] - self.surplus_groups,
            "dropped_all_0": self.all_zero,
            "dropped_all_1": self.all_one,
            "dropped_missing_rewards": self.missing_rewards,
            "discarded_surplus_groups": self.surplus_groups,
            "discarded_surplus_samples": self.surplus_samples,
            "num_gen_batches": self.num_batches,
        }
        return {f"training/filter_groups/{name}": Metric(value, "sum") for name, value in values.items()}


class FilterGroups(BatchSource):
    """``data.train_batch_size`` groups that differ, from as many batches of another source as that takes.

    The prompts that pass first, in the order in which the source gives them, make the batch. Those beyond it are dropped:
    to train on them later would be to train on tokens of older weights.
    """

    groups: list[PromptGroup]

    def __init__(
        self, inner: BatchSource, config: PPOTrainerConfig, score: Callable[[DataProto], list[RewardResult]]
    ) -> None:
        """Store the arguments.

        Args:
            inner: gives ``data.gen_batch_size`` prompts at a time.
            config: the run's configuration.
            score: the reward of each row.
        """
        self._inner = inner
        self._config = config
        self._score = score
        self.groups = []

    def next(self) -> DataProto:
        """See ``BatchSource``. The results of scoring are the object column ``reward_result``.

        Raises:
            FilteredGroupsError: ``algorithm.filter_groups.max_num_gen_batches`` did not give enough groups.
            MissingRewardError: more rewards of a generation are missing than ``trainer.max_failed_reward_fraction`` allows.
            DataError: a reward has no value, or no number, under ``algorithm.filter_groups.metric``.
        """
        wanted, counts = self._config.data.train_batch_size, Counts()
        parts: list[DataProto] = []
        reports: list[Mapping[str, Metric]] = []
        groups: dict[str, PromptGroup] = {}
        while (num_kept := counts.verdicts[Verdict.KEPT]) < wanted:
            self._require_another(counts)
            try:
                batch = self._inner.next()
            except StopIteration as end:
                text = f"the step that was begun had {num_kept} of {wanted} groups: {counts}"
                raise StopIteration(text) from end
            counts.num_batches += 1
            groups |= {group.uid: group for group in self._inner.groups}
            reports.append(batch.meta_info.pop(METRICS_KEY, {}))
            kept = self._kept(batch, counts, wanted - num_kept)
            parts += [kept] if len(kept) else []
        self.groups = list(groups.values())
        joined = parts[0] if len(parts) == 1 else DataProto.concat(parts)
        joined.meta_info[METRICS_KEY] = merge_metrics(reports) | counts.metrics()
        return joined

    def _kept(self, batch: DataProto, counts: Counts, wanted: int) -> DataProto:
        """The rows of the first ``wanted`` groups of ``batch`` that differ, with their results."""
        results = self._score(batch)
        require_rewards(results, self._config.trainer.max_failed_reward_fraction)
        values = [metric_value(result, self._config.algorithm.filter_groups.metric) for result in results]
        rows_of: dict[str, list[int]] = {}
        for row, uid in enumerate(batch.non_tensor_batch["uid"]):
            rows_of.setdefault(uid, []).append(row)
        kept: list[int] = []
        for rows in rows_of.values():
            if counts.add([value for row in rows if (value := values[row]) is not None]) is not Verdict.KEPT:
                counts.missing_rewards += sum(results[row].score is None for row in rows)
            elif wanted:
                kept += rows
                wanted -= 1
            else:
                counts.surplus_groups += 1
                counts.surplus_samples += len(rows)
        scored = DataProto.from_dict(non_tensors={REWARD_RESULT_KEY: object_array(results)})
        return batch.union(scored).select_idxs(np.array(kept, dtype=np.int64))

    def _require_another(self, counts: Counts) -> None:
        limit = self._config.algorithm.filter_groups.max_num_gen_batches
        if not limit or counts.num_batches < limit:
            return
        metric, wanted = self._config.algorithm.filter_groups.metric, self._config.data.train_batch_size
        msg = (
            f"{limit} generations (algorithm.filter_groups.max_num_gen_batches) did not give the {wanted} groups of "
            f"data.train_batch_size that differ in {metric!r}: {counts}. Groups of all 0 are too hard for the model, of "
            "all 1 too easy: change the data. Or raise max_num_gen_batches (0 sets no limit), data.gen_batch_size or "
            "actor_rollout_ref.rollout.n, or lower data.train_batch_size."
        )
        raise FilteredGroupsError(msg)

    def state_dict(self) -> dict[str, Any]:
        """See ``Stateful``: nothing is kept between steps."""
        return self._inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Stateful``."""
        self._inner.load_state_dict(state)


def judge(values: Sequence[float]) -> Verdict:
    """What becomes of a group whose responses have ``values``; missing ones are not among them."""
    if not values:
        return Verdict.NO_REWARD
    if len(values) == 1:
        return Verdict.SINGLE
    return Verdict.ALL_EQUAL if min(values) == max(values) else Verdict.KEPT


def metric_value(result: RewardResult, metric: str) -> float | None:
    """The value that must differ within a group; None where the reward is missing, or the value is NaN.

    Args:
        result: of one row.
        metric: one of ``SCORE_METRICS``, or a key of what the reward gave besides its score.

    Raises:
        DataError: the reward gave no such value, or no number.
    """
    if result.score is None:
        return None
    found = result.score if metric in SCORE_METRICS else result.extra.get(metric)
    if not isinstance(found, bool | int | float | np.bool_ | np.number):
        what = f"{found!r} instead of a number" if metric in result.extra else "nothing"
        msg = (
            f"algorithm.filter_groups.metric is {metric!r}, and a reward has {what} there. It has: "
            f"{', '.join(['reward', *map(str, sorted(result.extra, key=str))])}. Name one of these, or let the reward "
            f"function return a dict with {metric!r}."
        )
        raise DataError(msg)
    value = float(found)
    return None if value != value else value
