"""What a validation reports: for each data source and each number of its rewards, statistics over N answers a prompt.

``val-core/<source>/<variable>/<metric>`` is the headline (``acc`` where the reward gives it, else ``reward``; mean, best and
majority at the largest N), everything else stands under ``val-aux/``. ``best@k`` and ``worst@k`` are unbiased: the expected
best of k of the N answers drawn without replacement, so for 0/1 scores ``best@k/mean`` is pass@k.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Any

import numpy as np

_MAJORITY_SUBSETS = 1000
"""Subsets over which ``maj@k`` is averaged; all of them where there are no more."""


@dataclass(frozen=True, slots=True)
class ValidationAnswer:
    """One answer to one validation prompt.

    Attributes:
        data_source: of the prompt.
        uid: names the prompt.
        score: the reward.
        extra: further values of the reward; numbers are averaged, ``pred`` is voted on.
    """

    data_source: str
    uid: str
    score: float
    extra: Mapping[str, Any] = field(default_factory=dict)


def validation_metrics(answers: Sequence[ValidationAnswer]) -> dict[str, float]:
    """All validation metrics; prompts of a source weigh the same, however many of their answers came."""
    by_source: dict[str, dict[str, list[ValidationAnswer]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        by_source[answer.data_source][answer.uid].append(answer)
    metrics: dict[str, float] = {}
    for source, prompts in by_source.items():
        largest = max(len(group) for group in prompts.values())
        per_prompt = [_prompt_statistics(group, largest) for group in prompts.values()]
        variables = {variable for statistics in per_prompt for variable in statistics}
        headline = "acc" if "acc" in variables else "reward"
        for variable in sorted(variables):
            for name in sorted({name for statistics in per_prompt for name in statistics.get(variable, {})}):
                values = [
                    statistics[variable][name] for statistics in per_prompt if name in statistics.get(variable, {})
                ]
                core = variable == headline and _is_core(name, largest)
                metrics[f"{'val-core' if core else 'val-aux'}/{source}/{variable}/{name}"] = float(np.mean(values))
    return metrics


def expected_best(scores: Sequence[float], k: int) -> tuple[float, float]:
    """Mean and standard deviation of the largest of ``k`` of these scores, drawn without replacement.

    With the scores in ascending order, the i-th (from 1) is the largest in C(i-1, k-1) of the C(n, k) subsets.

    Source: Chen et al. 2021, arXiv:2107.03374, section 2.1 (pass@k), extended to any score.
    """
    ordered = sorted(scores)
    subsets = comb(len(ordered), k)
    # Integers are divided exactly: with a thousand scores and more they are too large for a float.
    weights = np.array([comb(i, k - 1) / subsets for i in range(len(ordered))], dtype=np.float64)
    values = np.array(ordered, dtype=np.float64)
    mean = float(weights @ values)
    variance = max(float(weights @ (values - mean) ** 2), 0.0)
    return mean, variance**0.5


def _prompt_statistics(group: Sequence[ValidationAnswer], largest: int) -> dict[str, dict[str, float]]:
    columns: dict[str, list[float]] = {"reward": [answer.score for answer in group]}
    for key in {key for answer in group for key in answer.extra}:
        found: list[Any] = [answer.extra.get(key) for answer in group]
        if all(isinstance(value, bool | int | float | np.number) for value in found):
            columns[key] = [float(value) for value in found]
    statistics = {variable: _statistics(values, largest) for variable, values in columns.items()}
    predictions = [answer.extra.get("pred") for answer in group]
    if all(prediction is not None for prediction in predictions):
        for variable, values in columns.items():
            statistics[variable] |= _majority(values, [str(prediction) for prediction in predictions])
    return statistics


def _statistics(values: Sequence[float], largest: int) -> dict[str, float]:
    """Statistics of one prompt; a prompt of which answers are missing still counts in the mean at ``largest``."""
    count = len(values)
    result = {f"mean@{largest}": float(np.mean(values))}
    if count > 1:
        result[f"std@{largest}"] = float(np.std(values))
        for k in _sizes(count):
            result[f"best@{k}/mean"], result[f"best@{k}/std"] = expected_best(values, k)
            worst, result[f"worst@{k}/std"] = expected_best([-value for value in values], k)
            result[f"worst@{k}/mean"] = -worst
    return result


def _majority(values: Sequence[float], predictions: Sequence[str]) -> dict[str, float]:
    count = len(values)
    result: dict[str, float] = {}
    for k in _sizes(count):
        voted = [_vote(subset, values, predictions) for subset in _subsets(count, k)]
        result[f"maj@{k}/mean"], result[f"maj@{k}/std"] = float(np.mean(voted)), float(np.std(voted))
    return result


def _vote(subset: Sequence[int], values: Sequence[float], predictions: Sequence[str]) -> float:
    """Score of the most frequent prediction; the first one met wins a tie."""
    winner = Counter(predictions[index] for index in subset).most_common(1)[0][0]
    return values[next(index for index in subset if predictions[index] == winner)]


def _subsets(count: int, k: int) -> list[tuple[int, ...]]:
    if comb(count, k) <= _MAJORITY_SUBSETS:
        return list(combinations(range(count), k))
    generator = np.random.default_rng(42)
    return [tuple(sorted(generator.choice(count, size=k, replace=False).tolist())) for _ in range(_MAJORITY_SUBSETS)]


def _sizes(count: int) -> list[int]:
    """2, 4, 8 … below ``count``, and ``count`` itself."""
    sizes = [2**power for power in range(1, count.bit_length()) if 2**power < count]
    return [*sizes, count] if count > 1 else []


def _is_core(name: str, largest: int) -> bool:
    return name in {f"mean@{largest}", f"best@{largest}/mean", f"maj@{largest}/mean"}
