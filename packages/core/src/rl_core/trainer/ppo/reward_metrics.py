"""Numbers about the rewards of a training step: each data source, each further value of a reward, each group.

What was not observed is left out, never 0: a source without a reward has a count of what is missing and no mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_core.metrics import Metric

if TYPE_CHECKING:
    from rl_core.contracts.reward import RewardResult

SOLVED_FROM = 1.0
"""An answer counts as right from this value on: of ``acc`` where every reward of the batch gives it, else of the score."""


def reward_metrics(results: Sequence[RewardResult], sources: Sequence[Any] | None) -> dict[str, Metric]:
    """Means and counts of scores by data source, and of the numbers in ``extra`` over all rows and by data source.

    Args:
        results: the reward of each row.
        sources: data source of each row; None where the batch does not tell.

    Returns:
        ``reward/<source>/{mean,count,missing}`` and ``reward_extra/<key>/mean``, ``reward_extra/<key>/<source>/mean``.
    """
    scores: dict[str, list[float]] = defaultdict(list)
    missing: dict[str, int] = defaultdict(int)
    extras: dict[str, list[float]] = defaultdict(list)
    if sources is None:
        sources = [None] * len(results)
    for result, source in zip(results, sources, strict=True):
        if source is not None:
            missing[f"reward/{source}"] += result.score is None
            if result.score is not None:
                scores[f"reward/{source}"].append(float(result.score))
        if result.score is None:
            continue
        for key, value in _numbers(result.extra):
            extras[f"reward_extra/{key}"].append(value)
            if source is not None:
                extras[f"reward_extra/{key}/{source}"].append(value)
    metrics = {f"{name}/mean": _mean(values) for name, values in (scores | extras).items()}
    metrics |= {f"{name}/count": Metric(len(scores[name]), "sum") for name in missing}
    return metrics | {f"{name}/missing": Metric(count, "sum") for name, count in missing.items()}


def group_metrics(results: Sequence[RewardResult], uids: Sequence[Any] | None) -> dict[str, Metric]:
    """Shares of the groups that are solved by all answers, by none, or that teach a group estimator nothing.

    A group is the scored answers to one prompt, where there are two or more.

    Args:
        results: the reward of each row.
        uids: names the prompt of each row; None where the batch does not tell.

    Returns:
        ``training/{solve_all,solve_none,groups_without_spread}``; nothing where no prompt has two scored answers.
    """
    members: dict[Hashable, list[tuple[float, float]]] = defaultdict(list)
    if uids is None:
        return {}
    scored = [
        (float(result.score), result, uid)
        for result, uid in zip(results, uids, strict=True)
        if result.score is not None
    ]
    accuracies = [dict(_numbers(result.extra)).get("acc") for _, result, _ in scored]
    has_accuracy = all(accuracy is not None for accuracy in accuracies)
    for (score, _, uid), accuracy in zip(scored, accuracies, strict=True):
        members[uid].append((score, accuracy if has_accuracy and accuracy is not None else score))
    groups = [np.array(group) for group in members.values() if len(group) > 1]
    if not groups:
        return {}
    solved = [group[:, 1] >= SOLVED_FROM for group in groups]
    return {
        "training/solve_all": _mean([float(rows.all()) for rows in solved]),
        "training/solve_none": _mean([float(not rows.any()) for rows in solved]),
        "training/groups_without_spread": _mean([float(np.ptp(group[:, 0]) == 0) for group in groups]),
    }


def _numbers(extra: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Entries that are observed numbers: a NaN says that there was nothing to judge."""
    for key, value in extra.items():
        if isinstance(value, bool | int | float | np.number | np.bool_) and not isnan(value):
            yield key, float(value)


def _mean(values: Sequence[float]) -> Metric:
    return Metric(float(np.mean(values)), "mean", count=len(values))
