"""What a validation reports: for each data source and each number of its rewards, statistics over N answers a prompt.

``val-core/<source>/<variable>/<metric>`` is the headline (``acc`` where the reward gives it, else ``reward``; mean, best and
majority at N), everything else stands under ``val-aux/``. ``best@k`` and ``worst@k`` are unbiased: the expected best of k of
the answers drawn without replacement, so for 0/1 scores ``best@k/mean`` is pass@k. A prompt with fewer than k usable answers
has no such number: it is left out, and ``best@k/left_out`` counts how many are. A value that is NaN was not observed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from math import comb, isnan
from typing import Any

import numpy as np

MAJORITY_SUBSETS = 1000
"""Subsets over which ``maj@k`` is averaged; all of them where there are no more."""


@dataclass(frozen=True, slots=True)
class ValidationAnswer:
    """One answer to one validation prompt.

    Attributes:
        data_source: of the prompt.
        uid: names the prompt.
        score: the reward.
        extra: further values of the reward; numbers are averaged, ``pred`` is voted on. A number that is absent or NaN
            is left out.
    """

    data_source: str
    uid: str
    score: float
    extra: Mapping[str, Any] = field(default_factory=dict)


def validation_metrics(answers: Sequence[ValidationAnswer], num_answers: int | None = None) -> dict[str, float]:
    """All validation metrics; prompts of a source weigh the same, however many of their answers came.

    Args:
        answers: those with a score.
        num_answers: N, how many answers each prompt was asked for, so that the names of a run stay the same whatever
            is missing; None takes the largest number of a source.
    """
    by_source: dict[str, dict[str, list[ValidationAnswer]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        by_source[answer.data_source][answer.uid].append(answer)
    metrics: dict[str, float] = {}
    for source, prompts in by_source.items():
        largest = num_answers or max(len(group) for group in prompts.values())
        per_prompt = [_prompt_statistics(group, largest) for group in prompts.values()]
        variables = {variable for statistics in per_prompt for variable in statistics}
        headline = "acc" if "acc" in variables else "reward"
        for variable in sorted(variables):
            found = [statistics.get(variable, {}) for statistics in per_prompt]
            for name, value in _over_prompts(found, largest).items():
                is_core = variable == headline and _is_core(name, largest)
                metrics[f"{'val-core' if is_core else 'val-aux'}/{source}/{variable}/{name}"] = value
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


def expected_majority(values: Sequence[float], predictions: Sequence[str], k: int) -> tuple[float, float]:
    """Mean and standard deviation of the score that the most frequent of ``k`` predictions has, over subsets.

    A prediction's score is the mean of its answers in the subset; predictions that are equally frequent share the vote,
    so neither order nor chance decides, and two answers are worth no more than one. All subsets are counted where there
    are at most ``MAJORITY_SUBSETS``, otherwise that many drawn ones.

    Args:
        values: the score of each answer.
        predictions: what each answer says, to be voted on.
        k: answers that vote, at most as many as there are.

    Source: Wang et al. 2023 (self-consistency), arXiv:2203.11171, section 2.
    """
    members = _subsets(len(values), k)
    says = np.unique(np.array(predictions, dtype=str), return_inverse=True)[1].reshape(-1)
    one_hot = np.eye(says.max() + 1)[says]  # [n, predictions]
    votes = members @ one_hot
    scores = (members * np.array(values, dtype=np.float64)) @ one_hot / np.maximum(votes, 1)
    wins = votes == votes.max(axis=1, keepdims=True)
    voted = (scores * wins).sum(axis=1) / wins.sum(axis=1)
    return float(voted.mean()), float(voted.std())


def _over_prompts(found: Sequence[Mapping[str, float]], largest: int) -> dict[str, float]:
    """Means over the prompts that have a number; for ``best@k``, how many have fewer than k answers."""
    result = {
        name: float(np.mean([statistics[name] for statistics in found if name in statistics]))
        for name in sorted({name for statistics in found for name in statistics})
    }
    for k in _sizes(largest):
        left_out = sum(f"best@{k}/mean" not in statistics for statistics in found)
        if left_out:
            result[f"best@{k}/left_out"] = float(left_out)
    return result


def _prompt_statistics(group: Sequence[ValidationAnswer], largest: int) -> dict[str, dict[str, float]]:
    """Variable -> statistics of one prompt; nothing for a variable that no answer has."""
    result: dict[str, dict[str, float]] = {}
    for variable in ("reward", *sorted({key for answer in group for key in answer.extra})):
        observed = [(answer, value) for answer in group if (value := _number(_value(answer, variable))) is not None]
        if not observed:
            continue
        values = [value for _, value in observed]
        result[variable] = _statistics(values, largest)
        predictions = [answer.extra.get("pred") for answer, _ in observed]
        if all(prediction is not None for prediction in predictions):
            for k in _sizes_of(len(values), largest):
                mean_and_std = expected_majority(values, [str(prediction) for prediction in predictions], k)
                result[variable][f"maj@{k}/mean"], result[variable][f"maj@{k}/std"] = mean_and_std
    return result


def _value(answer: ValidationAnswer, variable: str) -> Any:
    return answer.score if variable == "reward" else answer.extra.get(variable)


def _number(value: Any) -> float | None:
    """``value`` if it is an observed number."""
    if not isinstance(value, bool | int | float | np.number | np.bool_) or isnan(value):
        return None
    return float(value)


def _statistics(values: Sequence[float], largest: int) -> dict[str, float]:
    """Statistics of one prompt; a prompt of which answers are missing still counts in the mean at ``largest``."""
    result = {f"mean@{largest}": float(np.mean(values))}
    if len(values) > 1:
        result[f"std@{largest}"] = float(np.std(values))
    for k in _sizes_of(len(values), largest):
        result[f"best@{k}/mean"], result[f"best@{k}/std"] = expected_best(values, k)
        worst, result[f"worst@{k}/std"] = expected_best([-value for value in values], k)
        result[f"worst@{k}/mean"] = -worst
    return result


@lru_cache(maxsize=64)
def _subsets(count: int, k: int) -> np.ndarray:
    """[S, count] float64, 1.0 where a subset of size ``k`` has an answer; the same for every prompt."""
    if comb(count, k) <= MAJORITY_SUBSETS:
        chosen: Iterable[Sequence[int]] = combinations(range(count), k)
        index = np.array(list(chosen), dtype=np.int64)
    else:
        order = np.random.default_rng(42).random((MAJORITY_SUBSETS, count))
        index = order.argsort(axis=1)[:, :k]
    members = np.zeros((len(index), count))
    np.put_along_axis(members, index, 1.0, axis=1)
    return members


def _sizes(largest: int) -> list[int]:
    """2, 4, 8 ... below ``largest``, and ``largest`` itself."""
    sizes = [2**power for power in range(1, largest.bit_length()) if 2**power < largest]
    return [*sizes, largest] if largest > 1 else []


def _sizes_of(count: int, largest: int) -> list[int]:
    return [k for k in _sizes(largest) if k <= count]


def _is_core(name: str, largest: int) -> bool:
    return name in {f"mean@{largest}", f"best@{largest}/mean", f"maj@{largest}/mean"}
